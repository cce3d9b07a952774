"""Doctor: what is installed here, what it can use, and whether it works."""
