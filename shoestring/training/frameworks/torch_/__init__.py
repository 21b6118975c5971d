"""The learner, predictor and dropout of networks in PyTorch."""
