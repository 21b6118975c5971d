"""The nouns everyone shares: frozen values, parsed once at the door, units in the names.

Times are UTC. Every record that is written carries `schema_version`, so that an old one can be told from a broken one.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord


class Market(StrEnum):
    """How a machine is bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reserved"


class Format(StrEnum):
    """How a data set lies in the store."""

    PARQUET = "parquet"
    ARROW = "arrow"
    PACKED = "packed"


STANDARD_CLASS = "standard"
"""The storage class of what nobody said anything of."""

StorageClassName = Annotated[
    str, Field(description="storage class of the store", exclude_if=lambda name: name == STANDARD_CLASS)
]
"""Left out of records where it is the standard one."""

Access = Literal["none", "scan", "shuffled"]
WorkloadKind = Literal["compute", "data", "memory"]


class Need(Record):
    """What a stage costs, as data: `route` reads this and imports nothing of the stage's author."""

    stage: str
    after: tuple[str, ...] | None = Field(
        None,
        exclude_if=lambda names: names is None,
        description="stages that it waits for, and reads what they leave; none: it waits for nothing. null: the one before it",
    )
    work: str = Field(
        "",
        description="what it does, if its speed differs by that: a model's name. Empty: what the recipe is called",
    )
    elastic: bool = Field(
        False,
        description="takes as many samples as its budget buys (training), instead of a fixed amount of work",
    )
    setup_s: float = Field(
        1.0, ge=0, description="seconds before the first row on a reference core: imports, model building"
    )
    cpu_us_per_row: float = Field(
        0.0, ge=0, description="operations per input row; a reference core does 1e9 a second"
    )
    parallel_fraction: float = Field(
        0.0, ge=0, le=1, description="share of the per-row work that more cores speed up (Amdahl)"
    )
    reads: Access = Field("none", description="how rows are read from the upstream data set")
    passes: float = Field(1.0, gt=0, description="times a row is read; for an elastic stage, the most times")
    min_passes: float = Field(
        0.0, ge=0, description="elastic only: fewer passes than this are not worth starting for"
    )
    writes_bytes_per_row: int = Field(
        0, ge=0, description="bytes written per input row, before the format's size ratio; 0 = no data set"
    )
    memory_fixed_gb: float = Field(0.3, ge=0)
    memory_bytes_per_row: float = Field(0.0, ge=0)
    gpu: Literal["no", "may", "must"] = "no"
    gpu_flop_per_row: float = Field(
        0.0, ge=0, description="floating point operations per row when a GPU does the per-row work"
    )
    gpu_bytes_per_row: float = Field(
        0.0, ge=0, description="bytes per row between a GPU and its memory that its arithmetic waits for"
    )
    gpu_memory_gb: float = Field(0.0, ge=0)
    max_gpus: int = Field(
        1,
        ge=1,
        description="GPUs that it can use at once; a machine with more is priced as if it had so many",
    )
    step_rows: int = Field(1, ge=1, description="rows that each GPU takes between two synchronisations")
    sync_bytes: float = Field(
        0.0, ge=0, description="bytes that all GPUs agree on at each: of gradients, usually"
    )
    checkpoint_s: float = Field(
        0.0, ge=0, description="seconds to write a checkpoint and leave; what a notice of preemption costs"
    )
    workload: WorkloadKind | None = Field(
        None,
        description="the storage_class of a policy that it belongs to; None: by the rule of routing/preferences.py",
    )
    image: str = Field(
        "base",
        min_length=1,
        description="what its pod is made of: base, train, or the full name of an image of one's own",
    )


class Toleration(Record):
    """A Kubernetes toleration; the names are Kubernetes' own."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: str | None = None


class MarketTerms(Record):
    """What a pool asks of a pod, and threatens it with, on one market."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    preemptions_per_hour: float = Field(0.0, ge=0)


class NodeCapacity(Record):
    """What a node pool has left for a share of this size, now. Known only where nodes and pods may be read."""

    nodes: int = Field(ge=0)
    unschedulable: int = Field(
        0,
        ge=0,
        description="of those nodes, those that take no pod: cordoned, not ready, or tainted by the cluster",
    )
    max_nodes: int = Field(
        ge=0,
        description="nodes that an autoscaler may grow the pool to; as many as there are, where it has none",
    )
    free_shares: int = Field(ge=0, description="shares of this size that the nodes could take at once")
    free_cores: float = Field(description="on the node with the most free cores")
    free_memory_gb: float = Field(description="on that same node")
    free_gpus: int = Field(0, description="on that same node")
    pending_pods: int = Field(0, ge=0, description="pods that wait for the pool already")


class Pool(Record):
    """A kind of machine a stage can be placed on, whole or a share of a node: as the cluster reports it, or as a file declares it."""

    name: str = Field(min_length=1)
    node_pool: str | None = Field(
        None, description="the node pool that this is a share of; None: a machine of its own"
    )
    cores: int = Field(ge=1)
    memory_gb: float = Field(gt=0)
    core_speed: float = Field(
        1.0, gt=0, description="1e9 useful operations a second of one core; 1 = the reference core"
    )
    gpu: str | None = None
    gpu_count: int = Field(0, ge=0)
    gpu_memory_gb: float = Field(0.0, ge=0)
    gpu_tflops: float = Field(0.0, ge=0, description="peak dense bf16/fp16 TFLOP/s of one GPU")
    gpu_memory_gb_s: float = Field(
        0.0, ge=0, description="1e9 bytes a second between one GPU and its memory; 0: by its name"
    )
    gpu_link_gb_s: float = Field(
        0.0, ge=0, description="1e9 bytes a second from one of its GPUs to the next; 0: by its name"
    )
    nodes: int = Field(
        1,
        ge=1,
        description="such machines that it takes together, at one price; more than one: only to plan with",
    )
    network_gb_s: float = Field(
        1.25, gt=0, description="1e9 bytes a second from one of those machines to the next; 1.25: 10 Gbit/s"
    )
    startup_s: float = Field(
        0.0, ge=0, description="seconds from asking for the pod to its first line, billed"
    )
    power_w: float = Field(
        0.0, ge=0, description="watts with all of it at work; 0: by its cores, and its GPUs' name"
    )
    region: str = "local"
    provider: str = Field(
        "", description="who sells the machine: aws, gcp, ...; with the machine's name, price lists price it"
    )
    zone: str = ""
    machine: str = Field("", description="the machine's name in price lists: n2-standard-4, p5.48xlarge, ...")
    markets: dict[Market, MarketTerms] = {Market.ON_DEMAND: MarketTerms()}
    capacity: NodeCapacity | None = Field(None, description="None: not known, so nothing is refused for it")


class Hardware(Record):
    """What does a stage's per-row work on a pool: its cores, or GPUs of a type."""

    kind: Literal["cores", "gpu"]
    type: str = Field(description="of a GPU, its name; of a core, its speed")
    count: int = Field(ge=1, description="that the stage uses")
    gflop_s: float = Field(
        gt=0, description="1e9 operations a second of one: a GPU's peak, a core's useful ones"
    )
    gb_s: float = Field(
        0.0, ge=0, description="1e9 bytes a second between one GPU and its memory; 0: not known"
    )

    @property
    def name(self) -> str:
        return f"{self.count} x {self.type}"


class Quote(Record):
    """A price that passed quarantine: what is paid, after discounts. `list_usd_per_hour`: before them, where there are any."""

    pool: str
    market: Market
    usd_per_hour: Usd
    list_usd_per_hour: Usd | None = None
    as_of: date
    source: str


class RejectedPrice(Record):
    """A price row that was not believed, and the sentence that says why."""

    row: str
    reason: str


class FormatSpeed(Record):
    """What one format costs on the store's volume: seconds = rows x ns/1e9 + bytes / (bytes/s). From the probe."""

    format: Format
    write_ns_per_row: int
    write_bytes_per_s: int
    scan_ns_per_row: int
    scan_bytes_per_s: int
    take_ns_per_row: int
    take_bytes_per_s: int
    size_ratio: float = Field(gt=0, description="bytes on disk for each byte of row")


class VolumeProbe(StoredRecord):
    """The measured speeds of one volume."""

    volume: str
    as_of: AwareDatetime
    speeds: tuple[FormatSpeed, ...]


class LearnedSpeed(Record):
    """What receipts taught about a stage on a pool, or on any pool with its hardware: true seconds over the prior's, as a log-normal
    whose P95 is that of the errors which were made before."""

    stage: str
    pool: str | None = Field(None, description="None: any pool with this hardware that is not named")
    hardware: str = Field(
        "", description="name of the hardware; empty in what was written before there was one"
    )
    runs: int = Field(
        ge=0, description="of this work on this pool, or on this hardware; 0: learned from others like it"
    )
    log_mean: float
    log_sd: float = Field(ge=0)
    log_p95: float | None = Field(None, description="log of the P95; None: the log-normal's")
    unknown_log_sd: float = Field(0.0, ge=0, description="the part of log_sd that runs there would take away")


class Placement(Record):
    """The exact values that reach a pod. KFP's driver wants dict, list, dict and strings: see docs/design.md."""

    node_selector: dict[str, str]
    tolerations: tuple[Toleration, ...]
    affinity: dict[str, Any]
    cpu: str
    memory: str
    accelerator: str
    accelerator_count: str
    image: str


class StockOut(StoredRecord):
    """A node pool that took no pod within the queue delay, and until when that is remembered."""

    node_pool: str
    market: Market
    at: AwareDatetime
    until: AwareDatetime
    reason: str


class StageOutcome(Record):
    """What a stage leaves behind. `key` is what the next stage is given."""

    key: str
    artifact: str = Field(
        "", description="key of the object that an engine shows to people; empty: `key` itself"
    )
    rows: int = 0
    samples: int = 0
    metrics: dict[str, float] = {}
    stop_reason: str = Field(
        "", description="why it stopped before its work was all done; empty when it did all"
    )
