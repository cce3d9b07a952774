"""Sharing: plans and profiles in a folder or at an address, with an index to find them by."""

from .shelf import Shelf as Shelf
