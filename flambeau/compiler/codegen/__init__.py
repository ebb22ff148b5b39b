"""Printers of kernels, one package per kind of target."""
