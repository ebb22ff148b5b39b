"""Passes as objects: base class, manager, partitioner."""
