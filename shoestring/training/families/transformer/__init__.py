"""A decoder-only transformer for texts."""
