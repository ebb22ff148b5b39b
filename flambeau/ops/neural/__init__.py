"""Operators of neural networks: convolution, pooling, attention, normalization, losses."""
