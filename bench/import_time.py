"""Claim: `import shoestring` adds less than 20 ms to an interpreter, and no numpy, kfp or torch.

python bench/import_time.py [TIMES]

The script starts interpreters by turns: one that does nothing, one that imports the package, and one that
also uses a function of the API for the first time. It prints the medians and what each adds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

CASES = {
    "nothing": "pass",
    "import shoestring": "import shoestring",
    "first use": "import shoestring; shoestring.run",
}
MAX_ADDED_MS = 20.0
HEAVY = ("numpy", "kfp", "torch")


def seconds_of(code: str) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began_s


def main(times: int) -> int:
    """Return the exit code: 1 if the claim does not hold."""
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
    return int(bool(heavy) or added_ms >= MAX_ADDED_MS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
