"""Tier 1 of `compile`: op calls recorded by the native core, compiled as one graph at a flush."""
