"""Gradient boosting for tables."""
