"""Prints map, row, column and scan kernels as C."""
