"""What happens at a cache miss: a call is traced, differentiated and becomes a Plan."""
