"""Measuring: metrics, and later the rivals, the runner and the report."""
