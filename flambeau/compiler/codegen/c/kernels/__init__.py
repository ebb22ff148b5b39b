"""Templates of compute-bound kernels: products, convolutions, attention."""
