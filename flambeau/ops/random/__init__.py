"""Draws from distributions, and the generators that they advance."""
