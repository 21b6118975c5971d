"""The folder of a model."""
