"""Operators that create tensors from nothing or from Python values."""
