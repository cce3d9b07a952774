"""What is the paper's: its checkpoints, prompts, columns, and its numbers as suites."""
