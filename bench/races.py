"""Claim: of two runs that request a month's last money at once, one gets it; the other's refusal names the
missing amount.

python bench/races.py [--races 20] [--runs 2]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

sys.path.append(
    str(Path(__file__).parent.parent / "tests/backends")
)  # for the server and the races of the tests

from cap_races import MONTH_CAP_USD, RUN_CAP_USD, race
from s3_server import STAGE, S3Server, environment
from store_locations import StoreLocation


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--races", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    os.environ |= environment(STAGE)
    print(f"{describe()}\nmonth ${MONTH_CAP_USD}, each of {options.runs} runs requests ${RUN_CAP_USD}")
    kept = 0
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "server")
        server.start()
        try:
            for number in range(options.races):
                began_s = time.perf_counter()
                location = StoreLocation(Path(folder), server.location("races"))
                refusals, held_usd = race(location, f"{2100 + number}-01", options.runs)
                losers = [sentence for sentence in refusals if sentence]
                kept += held_usd == RUN_CAP_USD and len(losers) == options.runs - 1
                seconds = time.perf_counter() - began_s
                refusal = losers[0] if losers else "NO RUN WAS REFUSED"
                print(f"{number + 1:3}  held ${held_usd}  {seconds:4.1f} s  {refusal}")
        finally:
            server.kill()
    print(f"the cap held in {kept} of {options.races} races, and each ledger verified")
    sys.exit(kept != options.races)


if __name__ == "__main__":
    main()
