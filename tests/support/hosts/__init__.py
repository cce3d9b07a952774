"""Tiny, randomly initialised hosts for the tests: built offline, run on the CPU."""
