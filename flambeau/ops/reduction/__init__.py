"""Operators that reduce or scan dimensions: sums, extremes, statistics."""
