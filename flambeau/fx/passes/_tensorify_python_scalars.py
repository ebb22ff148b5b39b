"""PyTorch's pass that makes tensors of Python numbers: there is nothing for it to do here."""
