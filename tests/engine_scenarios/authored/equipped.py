"""A pipeline whose stages are given a secret, a config map, volumes, labels and annotations by its author."""

from decimal import Decimal

from kfp import dsl, kubernetes

from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages.command import command_need

METERED, THEIRS = "metered", "theirs"
NAME = "scenario-equipped"
"""Of the secret and of the config map, which hold one key each."""
IMAGE = IMAGES["base"]
STAGES = (command_need(METERED, memory_gb=0.2, grace_s=2.0), Need(stage=THEIRS, setup_s=2.0))
JOB = Job(name="equipped", budget_usd=Decimal("0.01"))
READ = 'echo "$TOKEN $MODE $TEAM $COLOUR" | tee /kept/read && cat /secret/token /kept/read > "$0"'
CHECK = 'test "$0" = "$(cat /secret/token; echo "$TOKEN $MODE $TEAM $COLOUR")"'


@dsl.container_component
def read(found: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", READ], [found])


@dsl.container_component
def check(found: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", CHECK], [found])


def equip(task: dsl.PipelineTask) -> None:
    task.set_env_variable("COLOUR", "blue")
    kubernetes.use_secret_as_env(task, NAME, {"token": "TOKEN"})
    kubernetes.use_secret_as_volume(task, NAME, "/secret")
    kubernetes.use_config_map_as_env(task, NAME, {"mode": "MODE"})
    kubernetes.empty_dir_mount(task, "kept", "/kept")
    kubernetes.add_pod_label(task, "team", "vision")
    kubernetes.add_pod_annotation(task, "example.com/owner", "vision")
    kubernetes.use_field_path_as_env(task, "TEAM", "metadata.labels['team']")


@dsl.pipeline(name="scenario-equipped")
def pipeline(
    run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
) -> None:
    run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        first = routed(read, STAGES, run, metered=True)
        second = routed(check, STAGES[1:], run, found=first.outputs["found"])
        equip(first)
        equip(second)
