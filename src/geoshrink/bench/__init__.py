"""Measuring: the methods, the metrics, and the runner that never loses a cell."""
