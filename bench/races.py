"""Claim: two runs that reach for a month's last money at the same moment never both get it, and the loser is told what it lacked.

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

sys.path.append(str(Path(__file__).parent.parent / "tests/outside"))  # the server and the races of the tests

from cap_races import MONTH_CAP_USD, RUN_CAP_USD, race
from s3_server import STAGE, S3Server, environment
from store_places import Place


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--races", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2)
    asked = parser.parse_args()
    os.environ |= environment(STAGE)
    print(f"{describe()}\nmonth ${MONTH_CAP_USD}, each of {asked.runs} runs wants ${RUN_CAP_USD}")
    kept = 0
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "server")
        server.start()
        try:
            for number in range(asked.races):
                began_s = time.perf_counter()
                said, held_usd = race(
                    Place(Path(folder), server.place("races")), f"{2100 + number}-01", asked.runs
                )
                losers = [sentence for sentence in said if sentence]
                kept += held_usd == RUN_CAP_USD and len(losers) == asked.runs - 1
                print(
                    f"{number + 1:3}  held ${held_usd}  {time.perf_counter() - began_s:4.1f} s  {losers[0] if losers else 'NOBODY LOST'}"
                )
        finally:
            server.kill()
    print(f"the cap held in {kept} of {asked.races} races, and the books with it")
    sys.exit(kept != asked.races)


if __name__ == "__main__":
    main()
