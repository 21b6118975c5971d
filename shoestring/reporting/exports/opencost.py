"""What OpenCost, or Kubecost, says was spent: the answer of its /allocation API, parsed once.

The answer is {"code": 200, "data": [set, ...]}; a set is an object of allocations by name, or null. Its fields, and what a total is made
of, are those of opencost/opencost: core/pkg/opencost/allocation_json.go and allocation.go (TotalCost). Labels come as Prometheus writes
them: what is no letter, digit or underscore is an underscore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from shoestring.core.errors import UsageError
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, RUN_LABEL, STAGE_LABEL, is_stage

OVERHEAD = "overhead"
# What is in a total and in no ledger of pods: volumes, network, load balancers, and what an asset outside of the cluster cost.
BESIDE = (
    *("pvCost", "pvCostAdjustment", "networkCost", "networkCostAdjustment"),
    *("loadBalancerCost", "loadBalancerCostAdjustment", "externalCost"),
)
IDLE = ("cpuCostIdle", "gpuCostIdle", "ramCostIdle")
MICRO = Decimal("0.000001")

Kind = Literal["pod", "idle", "shared", "unmounted"]
MARKS: dict[str, Kind] = {"__idle__": "idle", "__shared__": "shared", "__unmounted__": "unmounted"}


@dataclass(frozen=True, slots=True)
class Allocation:
    """One line of theirs, in whole micro-dollars. `idle`, `shared` and `beside` are inside of `total`. `run` is None where it is none of
    ours; `stage` is empty where only the run is told."""

    name: str
    kind: Kind
    run: str | None
    stage: str
    start: datetime
    end: datetime
    total: int
    idle: int
    shared: int
    beside: int


def read_allocations(data: bytes, runs: Collection[str]) -> list[Allocation]:
    """All allocations of all sets. `runs`: the ids of ours, by which pods and aggregates without labels are known.

    Raises:
        UsageError: it is not such an answer, with the place and what was expected.
    """
    try:
        answer = json.loads(data, parse_float=Decimal, parse_int=Decimal)
    except ValueError as error:
        raise UsageError(
            f"this is not JSON ({error}): save the answer of OpenCost's /allocation API as it comes"
        ) from None
    if isinstance(answer, dict) and answer.get("code") not in (None, 200):
        raise UsageError(
            f"OpenCost answered {answer['code']}: {answer.get('message') or 'no message'}; ask it again"
        )
    sets = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(sets, list) or not all(each is None or isinstance(each, dict) for each in sets):
        raise UsageError(
            "this is no answer of OpenCost's /allocation API: it has no list of sets under 'data'"
        )
    return [
        _allocation(f"data[{number}]", name, each, runs)
        for number, found in enumerate(sets)
        for name, each in (found or {}).items()
    ]


def _allocation(place: str, name: str, content: Any, runs: Collection[str]) -> Allocation:
    where = f"{place}[{name!r}]"
    if not isinstance(content, dict):
        raise UsageError(f"{where} is not an allocation: an object is expected")
    if content.get("totalCost") is None:
        raise UsageError(f"{where} has no totalCost, or one that is no number: ask OpenCost again")
    properties = content.get("properties") or {}
    kind: Kind = next((kind for mark, kind in MARKS.items() if mark in name), "pod")
    run, stage = _ours(name, properties, runs) if kind == "pod" else (None, "")
    return Allocation(
        name=name,
        kind=kind,
        run=run,
        stage=stage,
        start=_moment(where, content, "start"),
        end=_moment(where, content, "end"),
        total=_micro(where, content, "totalCost"),
        idle=sum(_micro(where, content, field) for field in IDLE),
        shared=_micro(where, content, "sharedCost"),
        beside=sum(_micro(where, content, field) for field in BESIDE),
    )


def _micro(where: str, content: Mapping[str, Any], field: str) -> int:
    """A field in whole micro-dollars, to the nearest; one that is not there is nothing."""
    value = content.get(field)
    if value is None:
        return 0
    if not isinstance(value, Decimal) or not value.is_finite():
        raise UsageError(f"{where} has {field} {value!r}: a number of dollars is expected")
    return int((value / MICRO).to_integral_value())


def _moment(where: str, content: Mapping[str, Any], field: str) -> datetime:
    try:
        found = datetime.fromisoformat(str(content.get(field)))
    except ValueError:
        raise UsageError(
            f"{where} has {field} {content.get(field)!r}: a time like 2026-11-03T00:00:00Z is expected"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def prometheus_label(label: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)


def _ours(name: str, properties: Mapping[str, Any], runs: Collection[str]) -> tuple[str | None, str]:
    """Run and stage by the pod's labels, else by the names that it was aggregated by, else by a pod's name that begins with the run's."""
    labels = properties.get("labels") or {}
    run = next(_labelled(labels, RUN_LABEL, KUBEFLOW_RUN_LABEL), None)
    stage = next(_labelled(labels, STAGE_LABEL), "")
    parts = name.split("/")
    if run is None:
        run = next((part for part in parts if part in runs), None)
        stage = stage or next(iter(parts[parts.index(run) + 1 :]), "") if run else stage
    if run is None:
        pod = str(properties.get("pod") or "")
        run = next(
            (known for known in sorted(runs, key=len, reverse=True) if pod.startswith(f"{known}-")), None
        )
    return run, (stage if not stage or is_stage(stage) else OVERHEAD) if run else ""


def _labelled(labels: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        for key in (name, prometheus_label(name)):
            if labels.get(key):
                yield str(labels[key])
