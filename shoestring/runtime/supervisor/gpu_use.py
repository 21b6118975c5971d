"""What the GPUs of an attempt did, from looks at them once a second."""

from __future__ import annotations

from dataclasses import dataclass

from shoestring.core.interfaces import ProcessUsage


@dataclass(slots=True)
class GpuUsage:
    """`joules` since the first look, None where no GPU counts them; `busy` the mean share of the time in which they computed."""

    joules: float | None = None
    peak_memory_bytes: int = 0
    _began_joules: float | None = None
    _busy: float = 0.0
    _looks: int = 0

    def look(self, usage: ProcessUsage) -> None:
        self.peak_memory_bytes = max(self.peak_memory_bytes, usage.gpu_memory_bytes)
        if usage.gpu_joules is not None:
            self._began_joules = usage.gpu_joules if self._began_joules is None else self._began_joules
            self.joules = usage.gpu_joules - self._began_joules
        if usage.gpu_busy is not None:
            self._busy, self._looks = self._busy + usage.gpu_busy, self._looks + 1

    @property
    def busy(self) -> float | None:
        return round(self._busy / self._looks, 4) if self._looks else None
