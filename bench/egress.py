"""Claim: moving 11, 51 and 60 TB out of AWS costs what the list says, where tiers that lose their floor say a fraction of it.

python bench/egress.py [--peer PYTHON]     PYTHON of an environment with skypilot 0.14.1; else $SKYPILOT_PYTHON

"list" adds the price of every single GB. SkyPilot's table has no free 100 GB but a free first GB, and ends at 150 TB at $0.05 for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from decimal import Decimal

import numpy as np
from machine import describe

from shoestring.config.tariffs import Tariffs, egress_microusd

TB = (1, 11, 51, 60, 140)
GB = 1024
# Out of AWS to the internet, $/GB up to so many GB of a month (list price, 2026-05-06).
TIERS = ((100, "0"), (10 * GB, "0.09"), (50 * GB, "0.085"), (150 * GB, "0.07"), (None, "0.05"))
PEER = """
import json, sys
import sky
from sky.clouds import AWS
cloud = AWS()
print(json.dumps([sky.__version__, [cloud.get_egress_cost(tb * 1024) for tb in json.loads(sys.argv[1])]]))
"""


def tariffs() -> Tariffs:
    tiers = [{"up_to_gb": end, "usd_per_gb": price} for end, price in TIERS]
    return Tariffs.model_validate({"egress_usd_per_gb": {"us-east-1->internet": tiers}})


def by_the_gb(tb: int) -> Decimal:
    usd, number = Decimal(0), 0
    for end, price in TIERS:
        above = min(tb * GB, end or tb * GB)
        usd += Decimal(price) * max(0, above - number)
        number = max(number, above)
    return usd


def peer(python: str | None) -> tuple[str, list[float] | None]:
    if not python:
        return "skipped: no --peer and no $SKYPILOT_PYTHON", None
    done = subprocess.run(
        [python, "-c", PEER, json.dumps(TB)], capture_output=True, text=True, check=False, timeout=240
    )
    if done.returncode:
        return f"skipped: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}", None
    version, costs = json.loads(done.stdout.strip().splitlines()[-1])
    return f"SkyPilot {version}", costs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default=os.environ.get("SKYPILOT_PYTHON"))
    name, theirs = peer(parser.parse_args().peer)
    listed = tariffs()
    begun = time.perf_counter()
    micro = egress_microusd(listed, "us-east-1", "internet", np.array(TB, dtype=np.float64) * GB)
    taken_us = (time.perf_counter() - begun) * 1e6
    print(describe())
    print(f"peer: {name}")
    print(f"{'TB':>5} {'list $':>12} {'ours $':>12} {'peer $':>12} {'peer/list':>10}")
    for index, tb in enumerate(TB):
        right, ours = by_the_gb(tb), Decimal(int(micro[index])).scaleb(-6)
        told = (
            f"{theirs[index]:>12,.2f} {theirs[index] / float(right):>10.3f}"
            if theirs
            else f"{'-':>12} {'-':>10}"
        )
        print(f"{tb:>5} {right:>12,.2f} {ours:>12,.2f} {told}")
        assert ours == right, f"{tb} TB: {ours} is not {right}"
    print(f"{len(TB)} volumes at once: {taken_us:.0f} us")


if __name__ == "__main__":
    main()
