"""Linear models for tables."""
