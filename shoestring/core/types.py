"""The types that every package shares: frozen values, parsed once where they enter, with units in their
names. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from shoestring.core.money import Usd
from shoestring.core.record import Count, KeyName, Record, StoredRecord
from shoestring.core.text import WordEnum


class Market(WordEnum):
    """How a machine is bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reserved"


class Format(WordEnum):
    """The file format of a data set's partitions."""

    PARQUET = "parquet"
    ARROW = "arrow"
    PACKED = "packed"
    SHARDS = "shards"


STANDARD_CLASS = "standard"
"""The storage class of an object that names none."""

StorageClassName = Annotated[
    str, Field(description="storage class of the store", exclude_if=lambda name: name == STANDARD_CLASS)
]

Access = Literal["none", "scan", "shuffled"]
WorkloadKind = Literal["compute", "data", "memory"]
STAGE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\.[0-9]+)*$"
StageName = Annotated[str, Field(pattern=STAGE_NAME)]
"""A stage's name, part of its records' names and a label of its pods; of an item of a loop, `work.3`."""
BRANCH = r"^([A-Za-z0-9_-]+/[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+)*)?$"
VERSION_4_FIELDS = {"once_setup_s", "once_cpu_us_per_row"}


class Need(Record):
    """The cost model of a stage, as data: the route step reads it without importing the stage itself."""

    stage: StageName
    after: tuple[StageName, ...] | None = Field(
        None,
        exclude_if=lambda names: names is None,
        description="upstream stages whose results it reads; an empty list: none; null: the stage before it",
    )
    branch: str = Field(
        "",
        pattern=BRANCH,
        exclude_if=lambda branch: not branch,
        description="GROUP/BRANCH, where a run may go without it; it takes at most one branch of a group; "
        "GROUP/BRANCH/GROUP/BRANCH: a branch within that branch",
    )
    items: int = Field(
        1,
        ge=0,
        exclude_if=lambda items: items == 1,
        description="items of the loops around it; before their lists are known, the number expected",
    )
    at_once: int = Field(
        0,
        ge=0,
        exclude_if=lambda items: not items,
        description="items that its loops work on at the same time; 0: all",
    )
    work: str = Field(
        "",
        description="what it computes, if its speed depends on that: a model's name; empty: the recipe's "
        "name",
    )
    elastic: bool = Field(
        False,
        description="processes as many samples as its budget buys (training), not a fixed amount of work",
    )
    by_time: bool = Field(
        False,
        exclude_if=lambda by_time: not by_time,
        description="its work cannot be counted in advance: a sample is a second of a reference core",
    )
    setup_s: float = Field(
        1.0, ge=0, description="seconds before the first row on a reference core: imports, model building"
    )
    cpu_us_per_row: float = Field(
        0.0,
        ge=0,
        description="microseconds that a reference core (1e9 useful operations/s) takes per input row",
    )
    parallel_fraction: float = Field(
        0.0, ge=0, le=1, description="share of the per-row work that more cores speed up (Amdahl)"
    )
    reads: Access = Field("none", description="how rows are read from the upstream data set")
    passes: float = Field(
        1.0, gt=0, description="times that each row is read; for an elastic stage, the maximum"
    )
    min_passes: float = Field(
        0.0, ge=0, description="elastic stages only: with fewer passes it is not started"
    )
    writes_bytes_per_row: int = Field(
        0, ge=0, description="bytes written per input row, before the format's size ratio; 0: no data set"
    )
    memory_fixed_gb: float = Field(0.3, ge=0)
    memory_bytes_per_row: float = Field(0.0, ge=0)
    gpu: Literal["no", "may", "must"] = "no"
    gpu_flop_per_row: float = Field(
        0.0, ge=0, description="floating-point operations per row when a GPU does the per-row work"
    )
    gpu_bytes_per_row: float = Field(
        0.0, ge=0, description="bytes per row between the GPU and its memory that the arithmetic waits for"
    )
    gpu_memory_gb: float = Field(0.0, ge=0)
    gpu_host_us_per_row: float = Field(0.0, ge=0, exclude_if=lambda us: not us)  # to load and start a row
    gpu_setup_s: float = Field(0.0, ge=0, exclude_if=lambda seconds: not seconds)  # further set-up there
    step_us: float = Field(0.0, ge=0, exclude_if=lambda us: not us)  # of a training's step, whatever its rows
    max_gpus: int = Field(1, ge=1, description="GPUs that it uses at once; others are paid for and idle")
    step_rows: int = Field(1, ge=1, description="rows that each GPU processes between two synchronisations")
    sync_bytes: float = Field(0.0, ge=0, description="bytes per synchronisation, usually the gradients")
    checkpoint_s: float = Field(
        0.0, ge=0, description="seconds to write a checkpoint and exit: the cost of a preemption notice"
    )
    workload: WorkloadKind | None = Field(
        None, description="workload class of the policy that applies to it; null: derived from its needs"
    )
    image: str = Field(
        "base", min_length=1, description="image of its pod: base, train, train-gpu, or a full image name"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_version_4(cls, data: Any) -> Any:
        """Version 4 had the cost of a baseline in two more fields, as part of the other two."""
        known = data.items() if isinstance(data, Mapping) else ()
        return {name: value for name, value in known if name not in VERSION_4_FIELDS} or data


class Toleration(Record):
    """A Kubernetes toleration, with the names of the Kubernetes API."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: str | None = None


class MarketTerms(Record):
    """The placement that a pool requires of a pod on one market, and its preemption rate there."""

    node_selector: dict[str, str] = Field({})
    tolerations: tuple[Toleration, ...] = ()
    preemptions_per_hour: float = Field(0.0, ge=0)


class NodeCapacity(Record):
    """The free capacity of a node pool for shares of one size, now.

    Known only where nodes and pods may be listed.
    """

    nodes: int = Field(ge=0)
    unschedulable: int = Field(
        0, ge=0, description="nodes that accept no pod: cordoned, not ready, or with undeclared taints"
    )
    max_nodes: int = Field(
        ge=0, description="maximum size of the pool under its autoscaler; the number of nodes if it has none"
    )
    free_shares: int = Field(ge=0, description="shares of this size that fit on the nodes at once")
    free_cores: float = Field(description="on the node with the most free cores")
    free_memory_gb: float = Field(description="on that same node")
    free_gpus: int = Field(0, description="on that same node")
    pending_pods: int = Field(0, ge=0, description="pods that wait for this pool")


class Pool(Record):
    """A machine type that a stage can run on, whole or as a share of a node, as a cluster reports it or a
    file declares it.
    """

    name: KeyName = Field(min_length=1)
    node_pool: KeyName | None = Field(
        None, description="the node pool that it is a share of; null: a whole machine"
    )
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    core_speed: float = Field(
        1.0, gt=0, description="speed of one core; 1: the reference core, 1e9 useful operations/s"
    )
    gpu: str | None = None
    gpu_count: int = Field(0, ge=0)
    gpu_memory_gb: float = Field(0.0, ge=0)
    gpu_tflops: float = Field(0.0, ge=0, description="peak dense bf16/fp16 TFLOP/s of one GPU")
    gpu_memory_gb_s: float = Field(
        0.0, ge=0, description="memory bandwidth of one GPU, 1e9 bytes/s; 0: from the GPU's name"
    )
    gpu_link_gb_s: float = Field(
        0.0,
        ge=0,
        description="bandwidth between two GPUs of the machine, 1e9 bytes/s; 0: from the GPU's name",
    )
    nodes: int = Field(
        1, ge=1, description="machines in the pool's price, used together; above 1 only for `shoestring plan`"
    )
    network_gb_s: float = Field(
        1.25, gt=0, description="network bandwidth between two such machines, 1e9 bytes/s; 1.25 is 10 Gbit/s"
    )
    startup_s: float = Field(
        0.0, ge=0, description="billed seconds between the request for the pod and its first line of output"
    )
    power_w: float = Field(0.0, ge=0, description="watts at full load; 0: from its cores and its GPUs' name")
    region: str = "local"
    provider: str = Field(
        "", description="aws, gcp, ...: with the machine's name, price lists can price the pool"
    )
    zone: str = ""
    machine: str = Field("", description="the machine's name in price lists: n2-standard-4, p5.48xlarge, ...")
    markets: dict[Market, MarketTerms] = Field({Market.ON_DEMAND: MarketTerms()})
    capacity: NodeCapacity | None = Field(
        None, description="null: unknown, so no offer is rejected for capacity"
    )


class Quote(Record):
    """An accepted price, after discounts.

    `list_usd_per_hour`: the price before discounts, if there are any. `node_usd_per_hour`: the price of the
    whole node at that time, if the pool is a share of one.
    """

    pool: str
    market: Market
    usd_per_hour: Usd
    list_usd_per_hour: Usd | None = None
    node_usd_per_hour: Usd | None = Field(None, exclude_if=lambda price: price is None)
    as_of: date
    source: str


class RejectedPrice(Record):
    """A row of a price list that was rejected, and the reason, as a sentence."""

    row: str
    reason: str


class Placement(Record):
    """The exact values that reach a pod. KFP's driver accepts only a dict, a list, a dict and strings."""

    node_selector: dict[str, str]
    tolerations: tuple[Toleration, ...]
    affinity: dict[str, Any]
    cpu: str
    memory: str
    accelerator: str
    accelerator_count: str
    image: str


class StockOut(StoredRecord):
    """A node pool that accepted no pod within the queue delay. Routers avoid it until `until`."""

    node_pool: str
    market: Market
    at: AwareDatetime
    until: AwareDatetime
    reason: str


class StageOutcome(Record):
    """The result of a stage. `key` is what the next stage receives."""

    key: str
    artifact: str = Field("", description="key of the object that an engine shows to people; empty: `key`")
    rows: Count = 0
    samples: Count = 0
    # Rows that an earlier version of the data set had, and that took no work.
    reused_rows: Count = Field(0, exclude_if=lambda rows: not rows)
    metrics: dict[str, float] = Field({})
    stop_reason: str = Field("", description="why it stopped early, and any problem with the files it keeps")
    only_its_run: bool = Field(
        False,
        exclude_if=lambda only: not only,
        description="money, time or a guardrail ended or shaped it, so that other runs cannot use it",
    )
    records: dict[str, str] = Field(
        {},
        exclude_if=lambda records: not records,
        description="what the run's report needs of it: name of a record of the run -> key of its content",
    )
