"""`torch.numa`: binding of processes to parts of a machine."""
