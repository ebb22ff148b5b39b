"""Operators of other packages whose compiled libraries are built for PyTorch."""
