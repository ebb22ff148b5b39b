"""Three hundred short programs, run under PyTorch and under Flambeau, and compared line by line."""
