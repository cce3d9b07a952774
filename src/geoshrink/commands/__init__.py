"""The commands of `geoshrink`, one module each; cli.py says what a command has."""
