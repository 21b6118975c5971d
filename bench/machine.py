"""One line on the machine of a measurement."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil


def describe() -> str:
    """Return processor, cores, memory, load and Python version."""
    info = Path("/proc/cpuinfo")
    models = (
        [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else []
    )
    memory_gb = psutil.virtual_memory().total / 1e9
    processor = models[0] if models else platform.processor() or platform.machine()
    return (
        f"{processor}, {psutil.cpu_count()} cores, {memory_gb:.0f} GB, load {psutil.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {platform.system()}"
    )


if __name__ == "__main__":
    print(describe())
