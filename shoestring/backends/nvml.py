"""The GPUs of this machine as NVML reports them: their types and their use."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shoestring.core.receipt import GpuUse

SILENT_S = 30.0
"""After this long without an answer, NVML counts as hanging: sums that lack the time since would be wrong."""

MAX_BOARD_W = 2000.0
"""More power than any GPU has (NVIDIA's B200: 1,000 W): a counter that rises faster is wrong."""


@dataclass(frozen=True, slots=True)
class InstalledGpu:
    """A GPU of this machine."""

    name: str
    memory_gb: float


def open_nvml() -> Any:
    """Return the initialised library `pynvml`; None without an NVIDIA driver or its Python bindings."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def device_handles(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def list_gpus() -> list[InstalledGpu]:
    """Return the GPUs of this machine; an empty list without NVML."""
    nvml = open_nvml()
    if nvml is None:
        return []
    try:
        return [
            InstalledGpu(
                str(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9
            )
            for handle in device_handles(nvml)
        ]
    finally:
        nvml.nvmlShutdown()


def pytorch_without_cuda() -> str:
    """Return why PyTorch as it is installed here trains on no GPU; "" if it can, or is not installed.

    It is not imported, which would take longer than most commands.
    """
    found = find_spec("torch")
    version = Path(found.origin).parent / "version.py" if found and found.origin else None
    if version is None or not version.is_file():
        return ""
    built = dict(re.findall(r"^(\w+)\b[^=\n]*= (.+)$", version.read_text(), re.MULTILINE))
    if (built.get("cuda"), built.get("hip", "None")) != ("None", "None"):
        return ""
    number = built.get("__version__", "").strip("'")
    return (
        f"networks are trained on the cores of this machine: its PyTorch, {number}, is built without CUDA. "
        "Install a build for CUDA to train them on its GPUs"
    )


@dataclass(slots=True)
class CardEnergy:
    """The energy of a GPU since its first reading: by its counter while this can be true, else by its power.

    Cards older than Volta have no counter.
    """

    joules: float | None = None
    source: Literal["counter", "power"] = "counter"
    _at_s: float | None = None
    _counter_j: float | None = None
    _watts: float | None = None

    def add(self, at_s: float, counter_j: float | None, watts: float | None) -> None:
        """Add a reading: of the counter, and of the power. None: the card does not report it."""
        if self._at_s is None:
            self.joules = None if counter_j is None and watts is None else 0.0
        elif self.joules is not None:
            added = self._since(at_s - self._at_s, counter_j, watts)
            self.joules = None if added is None else self.joules + added
        self._at_s, self._counter_j, self._watts = at_s, counter_j, watts

    def _since(self, seconds: float, counter_j: float | None, watts: float | None) -> float | None:
        if self.source == "counter" and counter_j is not None and self._counter_j is not None:
            counted = counter_j - self._counter_j
            # A counter is updated a few times a second.
            if 0 <= counted <= MAX_BOARD_W * (seconds + 1):
                return counted
        self.source = "power"
        if watts is None or self._watts is None:
            return None
        return (watts + self._watts) / 2 * seconds


class GpuReading(NamedTuple):
    """What one GPU reports at a moment. None: it does not, or reports what cannot be true."""

    busy: float | None
    memory_bytes: int
    used_bytes: int
    received_bytes_per_s: float | None
    counter_j: float | None
    watts: float | None


def read_gpu(nvml: Any, handle: Any) -> GpuReading:
    """Read one GPU. MIG slices report no utilisation, and virtual GPUs no counters of PCIe."""

    def read(name: str, *more: Any) -> Any:
        with suppress(nvml.NVMLError):
            return getattr(nvml, name)(handle, *more)
        return None

    def scaled(found: Any, factor: float, most: float = math.inf) -> float | None:
        return found * factor if found is not None and 0 <= found * factor <= most else None

    memory, rates = read("nvmlDeviceGetMemoryInfo"), read("nvmlDeviceGetUtilizationRates")
    has_memory = memory is not None and 0 <= memory.used <= memory.total
    return GpuReading(
        busy=scaled(None if rates is None else rates.gpu, 0.01, 1.0),
        memory_bytes=memory.total if has_memory else 0,
        used_bytes=memory.used if has_memory else 0,
        received_bytes_per_s=scaled(
            read("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES), 1000.0
        ),
        counter_j=scaled(read("nvmlDeviceGetTotalEnergyConsumption"), 0.001),
        watts=scaled(read("nvmlDeviceGetPowerUsage"), 0.001, MAX_BOARD_W),
    )


@dataclass(slots=True)
class Mean:
    """The mean of readings; None: one was lacking."""

    total: float = 0.0
    count: int = 0
    is_known: bool = True

    def add(self, readings: Sequence[float | None], by: int = 1) -> None:
        """Add the sum of the readings of all GPUs, divided by `by`."""
        known = [each for each in readings if each is not None]
        self.is_known = self.is_known and len(known) == len(readings)
        self.total, self.count = self.total + sum(known) / by, self.count + 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.is_known and self.count else None


@dataclass(slots=True)
class GpuUsage:
    """Reads all GPUs that an attempt can see, once a second. A container sees only its own.

    A thread of its own waits for NVML, which hangs where a driver does: a supervisor must not.
    `nvml`: an initialised library; None: NVML is opened at the first reading. `use`: up to the last reading;
    None: there was none.
    """

    nvml: Any = None
    now_s: Callable[[], float] = time.monotonic
    use: GpuUse | None = None
    _is_open: bool = False
    _first_s: float = 0.0
    _last_s: float = 0.0
    _busy: Mean = field(default_factory=Mean)
    _received: Mean = field(default_factory=Mean)
    _energies: list[CardEnergy] = field(default_factory=list)
    _due: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def sample(self) -> None:
        """Ask for a reading, and return at once. What NVML has not answered for long is unknown."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_always, name="nvml", daemon=True)
            self._thread.start()
        self._due.set()
        if self.use is not None and self.now_s() - self._last_s > SILENT_S:
            unknown = dict.fromkeys(("busy", "received_bytes", "joules", "watts", "energy_from"))
            self.use = self.use.model_copy(update=unknown)

    def _read_always(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            self.read()

    def read(self) -> None:
        """Read all GPUs now. Nothing changes where one does not answer."""
        if not self._is_open:
            self.nvml, self._is_open = self.nvml or open_nvml(), True
        if self.nvml is None:
            return
        with suppress(self.nvml.NVMLError):
            if readings := [read_gpu(self.nvml, handle) for handle in device_handles(self.nvml)]:
                self._add(readings, self.now_s())

    def _add(self, readings: Sequence[GpuReading], now_s: float) -> None:
        if not self._energies:
            self._first_s, self._energies = now_s, [CardEnergy() for _ in readings]
        self._last_s, seconds = now_s, now_s - self._first_s
        self._busy.add([each.busy for each in readings], len(readings))
        self._received.add([each.received_bytes_per_s for each in readings])
        for energy, each in zip(self._energies, readings, strict=False):
            energy.add(now_s, each.counter_j, each.watts)
        sums = [each.joules for each in self._energies]
        known = [each for each in sums if each is not None]
        joules = sum(known) if len(known) == len(sums) == len(readings) else None
        busy, received = self._busy.value, self._received.value
        by_counter = all(each.source == "counter" for each in self._energies)
        self.use = GpuUse(
            busy=None if busy is None else round(busy, 4),
            memory_bytes=sum(each.memory_bytes for each in readings),
            peak_memory_bytes=max(
                sum(each.used_bytes for each in readings), self.use.peak_memory_bytes if self.use else 0
            ),
            received_bytes=None if received is None else round(received * seconds),
            joules=None if joules is None else round(joules, 3),
            watts=None if joules is None or not seconds else round(joules / seconds, 1),
            energy_from=None if joules is None else "counter" if by_counter else "power",
        )

    @property
    def joules(self) -> float | None:
        return self.use.joules if self.use else None
