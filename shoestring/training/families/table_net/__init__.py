"""A multi-layer perceptron for tables and images."""
