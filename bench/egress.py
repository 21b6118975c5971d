"""Claim: moving 11, 51 and 60 TB out of AWS costs the list price; price tables that omit a tier's lower bound
give a fraction of it.

python bench/egress.py [--peer PYTHON] PYTHON of an environment with skypilot 0.14.1; else $SKYPILOT_PYTHON

"list" adds the price of every single GB. SkyPilot's table has a free first GB instead of 100 free GB, and
above 150 TB charges $0.05 for all GB.
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

from shoestring.config.tariff_costs import egress_microusd
from shoestring.config.tariffs import Tariffs

TB = (1, 11, 51, 60, 140)
GB = 1024
# AWS to the internet: (GB of a month up to which the price applies, $/GB), list prices of 2026-05-06.
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
        return f"skipped: {(done.stderr.strip().splitlines() or ['no error message'])[-1]}", None
    version, costs = json.loads(done.stdout.strip().splitlines()[-1])
    return f"SkyPilot {version}", costs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default=os.environ.get("SKYPILOT_PYTHON"))
    name, peer_usd = peer(parser.parse_args().peer)
    listed = tariffs()
    began_s = time.perf_counter()
    micro = egress_microusd(listed, "us-east-1", "internet", np.array(TB, dtype=np.float64) * GB)
    taken_us = (time.perf_counter() - began_s) * 1e6
    print(describe())
    print(f"peer: {name}")
    print(f"{'TB':>5} {'list $':>12} {'computed $':>12} {'peer $':>12} {'peer/list':>10}")
    for index, tb in enumerate(TB):
        expected, computed = by_the_gb(tb), Decimal(int(micro[index])).scaleb(-6)
        by_peer = (
            f"{peer_usd[index]:>12,.2f} {peer_usd[index] / float(expected):>10.3f}"
            if peer_usd
            else f"{'-':>12} {'-':>10}"
        )
        print(f"{tb:>5} {expected:>12,.2f} {computed:>12,.2f} {by_peer}")
        assert computed == expected, f"{tb} TB: {computed} is not {expected}"
    print(f"{len(TB)} volumes at once: {taken_us:.0f} us")


if __name__ == "__main__":
    main()
