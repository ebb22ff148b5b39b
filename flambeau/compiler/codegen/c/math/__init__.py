"""Helper functions of kernels as C: one implementation of each, for every vector width."""
