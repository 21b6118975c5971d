"""Blends: the predictions of several models, weighted."""
