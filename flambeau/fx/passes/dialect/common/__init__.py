"""Passes over any operators."""
