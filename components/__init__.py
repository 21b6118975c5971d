"""What Kubeflow Pipelines sees: one file a step, a signature and one call."""
