"""Allocations of OpenCost or Kubecost: the response of the /allocation API, parsed once.

The response is {"code": 200, "data": [set, ...]}; a set is an object of allocations by name, or null. The
fields, and the composition of a total, follow opencost/opencost: core/pkg/opencost/allocation_json.go and
allocation.go (TotalCost). Labels have Prometheus's spelling: each character other than a letter, digit or
underscore becomes an underscore.
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
from shoestring.core.money import MICRO
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, RUN_LABEL, STAGE_LABEL, is_stage

OVERHEAD = "overhead"
# Costs that no pod ledger contains: volumes, network, load balancers, and assets outside the cluster.
OTHER_COST_FIELDS = (
    *("pvCost", "pvCostAdjustment", "networkCost", "networkCostAdjustment"),
    *("loadBalancerCost", "loadBalancerCostAdjustment", "externalCost"),
)
IDLE_COST_FIELDS = ("cpuCostIdle", "gpuCostIdle", "ramCostIdle")

AllocationKind = Literal["pod", "idle", "shared", "unmounted"]
KIND_MARKS: dict[str, AllocationKind] = {
    "__idle__": "idle",
    "__shared__": "shared",
    "__unmounted__": "unmounted",
}


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation, in whole micro-dollars; the total includes idle, shared and other costs.

    `run_id` is None for pods that are not Shoestring's; `stage` is empty if only the run is known.
    """

    name: str
    kind: AllocationKind
    run_id: str | None
    stage: str
    start: datetime
    end: datetime
    total_microusd: int
    idle_microusd: int
    shared_microusd: int
    other_microusd: int


def read_allocations(data: bytes, runs: Collection[str]) -> list[Allocation]:
    """Parse all allocations of all sets.

    `runs`: Shoestring's run ids, which identify pods and aggregates without labels.

    Raises:
        UsageError: the data is not such a response; the message names the place and what was expected.
    """
    try:
        answer = json.loads(data, parse_float=Decimal, parse_int=Decimal)
    except ValueError as error:
        raise UsageError(
            f"this is not JSON ({error}): save the response of OpenCost's /allocation API unchanged"
        ) from None
    if isinstance(answer, dict) and answer.get("code") not in (None, 200):
        raise UsageError(
            f"OpenCost answered {answer['code']}: {answer.get('message') or 'no message'}; repeat the request"
        )
    sets = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(sets, list) or not all(each is None or isinstance(each, dict) for each in sets):
        raise UsageError(
            "this is not a response of OpenCost's /allocation API: it has no list of sets under 'data'"
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
        raise UsageError(f"{where} has no totalCost: repeat the request to OpenCost")
    properties = content.get("properties") or {}
    kind: AllocationKind = next((kind for mark, kind in KIND_MARKS.items() if mark in name), "pod")
    run, stage = _run_and_stage(name, properties, runs) if kind == "pod" else (None, "")
    return Allocation(
        name=name,
        kind=kind,
        run_id=run,
        stage=stage,
        start=_moment(where, content, "start"),
        end=_moment(where, content, "end"),
        total_microusd=_micro(where, content, "totalCost"),
        idle_microusd=sum(_micro(where, content, field) for field in IDLE_COST_FIELDS),
        shared_microusd=_micro(where, content, "sharedCost"),
        other_microusd=sum(_micro(where, content, field) for field in OTHER_COST_FIELDS),
    )


def _micro(where: str, content: Mapping[str, Any], field: str) -> int:
    """Return a field in whole micro-dollars, rounded to the nearest; 0 if it is missing."""
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


def _run_and_stage(name: str, properties: Mapping[str, Any], runs: Collection[str]) -> tuple[str | None, str]:
    """Return run and stage: from the pod's labels, else from the names in the aggregate, else from the pod's
    name.
    """
    labels = properties.get("labels") or {}
    run = next(_label_values(labels, RUN_LABEL, KUBEFLOW_RUN_LABEL), None)
    stage = next(_label_values(labels, STAGE_LABEL), "")
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


def _label_values(labels: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        for key in (name, prometheus_label(name)):
            if labels.get(key):
                yield str(labels[key])
