"""`torch.fx.experimental`: changes of graphs that PyTorch calls experimental; views of sizes."""
