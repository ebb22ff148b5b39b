"""`torch._dynamo.backends`: the registry of backends."""
