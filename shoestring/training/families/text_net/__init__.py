"""A causal network for texts."""
