"""Passes over graphs of certain operators."""
