"""`torch.fx.passes`: analyses and changes of graphs."""
