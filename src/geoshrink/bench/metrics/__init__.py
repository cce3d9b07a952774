"""Metrics, one file per modality."""
