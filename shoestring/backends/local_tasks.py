"""The tasks of the local engine, as its launcher reports them: a process has no labels, and no cluster keeps
its times.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import AwareDatetime

from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LabelledPod
from shoestring.core.record import Record

LOCAL_TASKS_VARIABLE = "SHOESTRING_LOCAL_TASKS"
"""Names the file of the tasks to each step of the local engine."""


class LocalTask(Record):
    """When a task of a stage ran, and why it failed; empty: it did not. `finished_at` null: it runs."""

    started_at: AwareDatetime
    finished_at: AwareDatetime | None = None
    reason: str = ""


class LocalTasks(Record):
    """All tasks of stages that have begun, by `task_name`."""

    tasks: dict[str, LocalTask]


def task_name(label: str, item: str) -> str:
    """Return the name of a task by the label of its pod, LABEL=VALUE, and its item of the loops around it."""
    return f"{label}#{item}" if item else label


def local_tasks() -> LocalTasks | None:
    """Return the tasks of this step's engine; None: it is not the local one."""
    path = os.environ.get(LOCAL_TASKS_VARIABLE)
    return LocalTasks.model_validate_json(Path(path).read_bytes()) if path else None


def task_lifetime(pod: LabelledPod) -> PodLifetime:
    """Return the lifetime of the task that stands for a pod; no times if its engine reports none."""
    known = local_tasks()
    names = (task_name(label, pod.item) for label in pod.selector.split(","))
    task = next((known.tasks[name] for name in names if name in known.tasks), None) if known else None
    if task is None:
        return PodLifetime(alive=False)
    return PodLifetime(task.finished_at is None, task.started_at, task.finished_at, task.reason)
