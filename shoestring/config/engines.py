"""Engine time: what an engine takes between two stages, and for its pods that run no stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.record import Record

Engine = Literal["local", "kubeflow", "argo"]
DeadlineKind = Literal["soft", "hard"]

CREATES_PODS_AGAIN: frozenset[Engine] = frozenset({"kubeflow", "argo"})
"""Engines that create a pod that they lost again, with the same decision."""


class EngineTimes(Record):
    """The P95 seconds of an engine around the stages, and how it ends a stage's pod.

    A step lasts from the end of one stage's pod to the start of the next stage's pod, with the router between
    them. The start-up of a pool comes after it, and is part of the stage.
    """

    engine: Engine
    step_s: float = Field(ge=0, description="seconds of a step")
    place_s: float = Field(ge=0, description="seconds from a decision to the start of its stage's pod")
    pod_s: float = Field(ge=0, description="billed seconds of a pod that runs no stage")
    gives_notice: bool = Field(
        True,
        exclude_if=lambda gives: gives,
        description="whether a stage can write a checkpoint once its pod is to end",
    )
    measured_steps: int = Field(0, ge=0, description="steps that were measured; 0: the seconds are assumed")

    def left_s(self, steps: int) -> float:
        """Return the seconds that the engine still takes, where the first of `steps` has its decision."""
        return self.place_s + (steps - 1) * self.step_s

    @property
    def source(self) -> str:
        """Where the seconds come from, as text."""
        steps = self.measured_steps
        return f"P95 of {steps} steps" if steps else "assumed: nothing is measured yet"


ASSUMED_STEP_S: dict[Engine, float] = {"local": 3.0, "kubeflow": 25.0, "argo": 15.0}
"""A step before any was measured, without the start-up of the stage's pool.

Seen on pools that take 5 s to start, from the end of a stage to the first line of the next one, start-up
included:
- Argo Workflows 3.7: 20 s where its controller looks every 10 s, the default of DEFAULT_REQUEUE_TIME, and
  13 s where it looks every 2 s.
- Kubeflow Pipelines 2.17, which runs a driver's pod and a launcher's for each router and stage: 25 s where
  its controller looks every 2 s. A look every 10 s, the default, adds up to 5 s."""

PLACE_SHARE = 0.5
"""The part of an assumed step that comes after the decision: router and stage are a pod each."""


def assumed_times(engine: Engine, pod_s: float) -> EngineTimes:
    """Return an engine's times before any was measured. `pod_s` is as in `EngineTimes`."""
    step_s = ASSUMED_STEP_S[engine]
    return EngineTimes(
        engine=engine,
        step_s=step_s,
        place_s=PLACE_SHARE * step_s,
        pod_s=pod_s,
        # The launcher of Kubeflow Pipelines dies of SIGTERM at once, and with it the container.
        gives_notice=engine != "kubeflow",
    )
