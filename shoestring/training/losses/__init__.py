"""The losses of predictions, their calibration, and their combination."""
