"""What is run: a model of the zoo at a setting, or a checkpoint of the paper with its prompts."""
