"""Operators that compute each element of a result from the elements at the same position."""
