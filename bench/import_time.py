"""Claim: `import shoestring` adds less than 20 ms to an interpreter, and no numpy, kfp or torch. `shoestring
runs` takes at most 0.7 CPU-seconds, and `shoestring plan` of a small table 2.

python bench/import_time.py [TIMES]

The script starts interpreters by turns: one that does nothing, one that imports the package, and one that
also uses a function of the API for the first time. It prints the medians and what each adds. Then it runs a
table of 3,322 rows, and prints the median CPU seconds of both commands in its store.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cli import PLANES, SHOESTRING
from machine import describe

CASES = {
    "nothing": "pass",
    "import shoestring": "import shoestring",
    "first use": "import shoestring; shoestring.run",
}
MAX_ADDED_MS = 20.0
HEAVY = ("numpy", "kfp", "torch")
MAX_CPU_S = {"runs": 0.7, "plan": 2.0}


def seconds_of(code: str) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began_s


def cpu_seconds_of(words: list[str]) -> float:
    """Return the CPU seconds of a command and of all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*SHOESTRING, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def are_commands_light(times: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        recipe, store = Path(folder, "planes.yaml"), ["--store", str(Path(folder, "store"))]
        recipe.write_text(PLANES)
        cpu_seconds_of(["run", str(recipe), "--out", str(Path(folder, "out")), *store])
        runs = [cpu_seconds_of(["runs", *store]) for _ in range(times)]
        plans = [cpu_seconds_of(["plan", str(recipe), *store]) for _ in range(times)]
    taken = {"runs": runs, "plan": plans}
    medians_s = {name: statistics.median(each) for name, each in taken.items()}
    for name, median_s in medians_s.items():
        print(f"{name:20} {median_s:8.2f} CPU-seconds, of at most {MAX_CPU_S[name]}")
    return all(median_s <= MAX_CPU_S[name] for name, median_s in medians_s.items())


def main(times: int) -> int:
    """Return the exit code: 1 if the claim does not hold."""
    print(describe())
    for code in CASES.values():
        seconds_of(code)
    taken = {name: list[float]() for name in CASES}
    for _ in range(times):
        for name, code in CASES.items():
            taken[name].append(seconds_of(code) * 1000)
    medians_ms = {name: statistics.median(each) for name, each in taken.items()}
    for name, median_ms in medians_ms.items():
        print(f"{name:20} {median_ms:8.1f} ms, {median_ms - medians_ms['nothing']:+8.1f} ms")
    loaded = subprocess.run(
        [sys.executable, "-c", "import shoestring, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = [name for name in HEAVY if name in loaded]
    print(f"imported: {', '.join(heavy) or 'none of ' + ', '.join(HEAVY)}")
    added_ms = medians_ms["import shoestring"] - medians_ms["nothing"]
    return int(bool(heavy) or added_ms >= MAX_ADDED_MS or not are_commands_light(times))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
