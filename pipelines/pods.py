"""The pods of Shoestring's tasks on Kubeflow: all that they are given, apart from their placement."""

from __future__ import annotations

from kfp import dsl, kubernetes

from shoestring.backends.kubernetes.discovery import NOT_SPOT
from shoestring.backends.local import WORLD_MOUNT_PATH
from shoestring.backends.s3.location import CREDENTIAL_VARIABLES, CREDENTIALS_SECRET
from shoestring.backends.sources.data_variables import DATA_SECRET, DATA_VARIABLES
from shoestring.config.world import WORLD_FILES
from shoestring.core.pod_ref import NODE_VARIABLE, WORKFLOW_VARIABLE
from shoestring.routing.placement import STAGE_LABEL, STEP_REQUESTS

IDENTITY_FIELDS = {
    "SHOESTRING_POD_NAMESPACE": "metadata.namespace",
    "SHOESTRING_POD_UID": "metadata.uid",
    "SHOESTRING_POD_NAME": "metadata.name",
    # Argo writes these, also for Kubeflow.
    WORKFLOW_VARIABLE: "metadata.labels['workflows.argoproj.io/workflow']",
    NODE_VARIABLE: "metadata.annotations['workflows.argoproj.io/node-name']",
}
# The user of the images.
USER_ID = 8737
# The largest weight that Kubernetes has: no other preference of the scheduler's own outweighs it.
NOT_SPOT_WEIGHT = 100


def configure_pod(task: dsl.PipelineTask, stage: str) -> dsl.PipelineTask:
    """Give a pod its identity, the world's files and the credentials of store and data, take root from it,
    and turn KFP's cache off.

    `stage` is the pod's label: a stage's name, `route-STAGE` or `settle`. KFP's local runner ignores all of
    this.
    """
    for name in WORLD_FILES:
        # Optional, like the credentials: a pod without one starts and reports which is missing, instead of
        # waiting silently.
        kubernetes.use_config_map_as_volume(
            task, f"shoestring-{name}", f"{WORLD_MOUNT_PATH}/{name}", optional=True
        )
    for secret, names in ((CREDENTIALS_SECRET, CREDENTIAL_VARIABLES), (DATA_SECRET, DATA_VARIABLES)):
        kubernetes.use_secret_as_env(task, secret, {name: name for name in names}, optional=True)
    for name, field_path in IDENTITY_FIELDS.items():
        kubernetes.use_field_path_as_env(task, name, field_path)
    kubernetes.empty_dir_mount(task, "scratch", "/tmp")
    kubernetes.set_security_context(task, run_as_user=USER_ID, run_as_non_root=True)
    kubernetes.add_pod_label(task, STAGE_LABEL, stage)
    return task.set_caching_options(False)


def configure_step(task: dsl.PipelineTask, label: str) -> dsl.PipelineTask:
    """Do `configure_pod` for a route or exit step, with what it requests.

    It prefers nodes that are not spot, since Kubeflow does not create it again. Without a limit on cores, it
    also uses what is free on its node.
    """
    kubernetes.add_node_affinity(task, match_expressions=NOT_SPOT, weight=NOT_SPOT_WEIGHT)
    task.set_cpu_request(STEP_REQUESTS["cpu"]).set_memory_request(STEP_REQUESTS["memory"])
    return configure_pod(task, label)
