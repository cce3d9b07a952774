"""The commands that geoshrink-bench adds to `geoshrink`, one module each."""
