"""The components that Kubeflow Pipelines runs: one file for each step, with a signature and one call."""
