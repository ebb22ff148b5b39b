"""Helpers around modules: gradient clipping, packed sequences, parametrizations."""
