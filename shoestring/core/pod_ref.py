"""References to pods, and to the processes that stand for pods on one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

WORKFLOW_VARIABLE = "SHOESTRING_WORKFLOW"
"""Names the Workflow that a pod belongs to, on both engines of a cluster."""
NODE_VARIABLE = "SHOESTRING_NODE"
"""Names a pod's node in that Workflow: the steps, groups and loops around it."""
LAUNCHER_VARIABLE = "SHOESTRING_LAUNCHER"
"""Refers to the launcher of the run that a process works for."""
ITEM = re.compile(r"\((\d+):\1\)")
"""How both engines name the node of one item of a loop: by its number, which is also its value."""
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PodRef:
    """A reference to one pod: a ClusterPod, a LabelledPod or a LocalProcess.

    `str()` gives the form in which records store a reference, and `parse` reads that form back. As a field of
    a record, a reference is a string in JSON.
    """

    __slots__ = ()

    @staticmethod
    def parse(text: str) -> PodRef:
        """Return the reference that `text` is the stored form of. Raises ValueError."""
        namespace, is_labelled, selector = text.partition("?")
        if is_labelled:
            selector, _, item = selector.partition("#")
            return LabelledPod(namespace, selector, item)
        parts = text.split(".", 2)
        if len(parts) < 3 or not all(parts):
            raise ValueError(
                f"{text!r} refers to no pod: NAMESPACE.UID.NAME, NAMESPACE?LABELS[#ITEM] or "
                "HOST~BOOT~IDS.PID.CREATED_MS"
            )
        host, pid, created_ms = text.rsplit(".", 2)
        if pid.isdecimal() and created_ms.isdecimal() and not UID.fullmatch(parts[1]):
            return LocalProcess(host.partition("~")[0], int(pid), int(created_ms), *host.split("~")[1:3])
        return ClusterPod(*parts)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        parsed = core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=parsed,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), parsed]),
            serialization=core_schema.to_string_ser_schema(),
        )


@dataclass(frozen=True, slots=True)
class ClusterPod(PodRef):
    """A pod of a cluster, by its namespace, uid and name."""

    namespace: str
    uid: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.uid}.{self.name}"


@dataclass(frozen=True, slots=True)
class LabelledPod(PodRef):
    """The newest pod with these labels in a namespace, for a pod that no code of Shoestring runs in.

    `selector` is a Kubernetes label selector: LABEL=VALUE, separated by commas. `item`: of the loops that its
    task is in, whose pods share all labels; empty outside of loops.
    """

    namespace: str
    selector: str
    item: str = ""

    @classmethod
    def with_labels(cls, namespace: str, labels: Mapping[str, str], item: str = "") -> LabelledPod:
        """Return a reference to the newest pod of `namespace` that carries all of `labels`."""
        return cls(namespace, ",".join(f"{label}={value}" for label, value in labels.items()), item)

    def __str__(self) -> str:
        return f"{self.namespace}?{self.selector}" + (f"#{self.item}" if self.item else "")


@dataclass(frozen=True, slots=True)
class LocalProcess(PodRef):
    """A process, by its host, its id and its creation time in milliseconds.

    Several containers may have one host name, and each has ids of its own. `boot`, `namespace`: of the host,
    and of these ids; empty: an earlier version named it. No other process ever has all five.
    """

    host: str
    pid: int
    created_ms: int
    boot: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        place = f"{self.host}~{self.boot}~{self.namespace}" if self.boot else self.host
        return f"{place}.{self.pid}.{self.created_ms}"


def item_of_node(node: str) -> str:
    """Return the item of a node of a Workflow, by its name: its number in each loop around it, the outermost
    first, such as `2.1`; empty outside of loops.
    """
    return ".".join(ITEM.findall(node))


@cache
def this_place() -> tuple[str, str]:
    """Return short names of this boot of the host, and of the PID namespace of this process; empty ones
    where the system has none.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return boot, str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""
