"""Who follows whom, for Kubeflow Pipelines."""
