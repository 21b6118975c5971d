"""The pipelines, for Kubeflow Pipelines and for Argo Workflows."""
