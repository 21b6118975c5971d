"""A convolutional network for images."""
