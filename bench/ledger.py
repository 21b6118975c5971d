"""Claim: concurrent writers of one account lose and duplicate nothing; an append costs the same at any chain
length; writers killed at any moment lose no entry that was reported as written.

For scale it also measures PostgreSQL inserts, one transaction each, on the same disk. They check no cap and
chain no hash.

python bench/ledger.py [--processes 16] [--entries 50] [--length 20000] [--kills 60]
The claim is measured with --processes 64 --entries 200 --length 100000 --kills 500.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from machine import describe

sys.path.append(
    str(Path(__file__).parent.parent / "tests/backends")
)  # the server and the processes of the tests

from s3_server import ADMIN, S3Server, environment
from store_locations import FORKS, StoreLocation, at_once

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

CENT, PLENTY = Decimal("0.01"), Decimal(10**6)
# In memory, flushing costs nothing, so only the work of the append is measured.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
SHORT_LENGTH, SAMPLES, NEW_WRITERS = 1_000, 300, 5
PG_BIN = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PG_SECONDS = 5
CREATE_TABLE = (
    "CREATE TABLE entries (id bigserial PRIMARY KEY, account text, reservation text, amount bigint)"
)
INSERT = """\\set n random(1, 1000000000)
INSERT INTO entries (account, reservation, amount) VALUES ('run', md5(:n::text), 10000);
"""


def timed_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def append_many(
    me: int, gate: Any, place: StoreLocation, accounts: list[str], entries: int
) -> tuple[list[float], float, float]:
    """Return the seconds of each append, when the first began, and when the last ended."""
    ledger = Ledger(place.open(), WallClock(), f"pod-{me}")
    ledger.state(accounts[me])
    gate.wait()
    began_s = time.monotonic()
    took_s = [
        timed_s(partial(ledger.reserve, accounts[me], f"work-{me}-{number}", "work", number, CENT))
        for number in range(entries)
    ]
    return took_s, began_s, time.monotonic()


def contend(place: StoreLocation, label: str, accounts: list[str], entries: int) -> None:
    """Append from one process per item of `accounts` at once, and print what was lost or duplicated."""
    store = place.open()
    for account in set(accounts):
        Ledger(store, WallClock()).open(account, PLENTY)
    answers = at_once(len(accounts), append_many, place, accounts, entries)
    broken = [answer for answer in answers if isinstance(answer, str)]
    assert not broken, broken[0]
    found = verify(store, {})
    written = [
        (state.account, reservation)
        for state in found.accounts
        if state.account in accounts
        for reservation in state.reservations
    ]
    requested = {
        (account, f"work-{me}-{number}") for me, account in enumerate(accounts) for number in range(entries)
    }
    took_s = sorted(second for answer in answers for second in answer[0])
    wall_s = max(answer[2] for answer in answers) - min(answer[1] for answer in answers)
    print(
        f"{label:>36}  {len(requested - set(written)):4}  {len(written) - len(set(written)):10}  "
        f"{len(took_s) / wall_s:9.0f}  "
        f"{median(took_s) * 1e3:9.1f}  {took_s[-1]:9.2f}",
        flush=True,
    )


def contention(server: S3Server, folder: Path, processes: int, entries: int, stores: list[str]) -> None:
    print(f"\n{'a real S3 server, and a folder':>36}  lost  duplicates  entries/s  median ms  slowest s")
    own = [f"own-{me}" for me in range(processes)]
    for name, place in (
        ("S3", StoreLocation(folder, server.location("contention"))),
        ("folder", StoreLocation(folder / "contention")),
    ):
        if name not in stores:
            continue
        contend(place, f"{name}, 1 on one account", ["alone"], entries)
        contend(place, f"{name}, {processes} on {processes} accounts", own, entries)
        contend(place, f"{name}, {processes} on one account", ["shared"] * processes, entries)


def grow(ledger: Ledger, account: str, length: int) -> None:
    """Append to an account until it has `length` entries; half of them settle reservations, as in a
    real month.
    """
    ledger.open(account, PLENTY)
    for number in range(1, length // 2):
        ledger.reserve(account, f"work-{number}", "work", number, CENT)
        ledger.settle(account, f"work-{number}", CENT)


def lengths(root: Path, length: int) -> None:
    """Measure an append at both lengths in turns, by a writer that knows the account and by a new one."""
    store, known = FolderStore(root), dict[int, Ledger]()
    for entries in (SHORT_LENGTH, length):
        known[entries] = Ledger(store, WallClock())
        grow(known[entries], f"long-{entries}", entries)
    appends_s: dict[int, list[float]] = {entries: [] for entries in known}
    first_s: dict[int, list[float]] = {entries: [] for entries in known}
    for number in range(SAMPLES):
        for entries, ledger in known.items():
            appends_s[entries].append(
                timed_s(partial(ledger.reserve, f"long-{entries}", f"more-{number}", "work", 1, CENT))
            )
    for number in range(NEW_WRITERS):
        for entries in known:
            new = Ledger(store, WallClock())
            first_s[entries].append(
                timed_s(partial(new.reserve, f"long-{entries}", f"new-{number}", "work", 1, CENT))
            )
    print(f"\n{'entry':>36}  append ms  (mean)  first of a new writer, ms   on {root.parent}")
    for entries in known:
        mean_ms = sum(appends_s[entries]) / SAMPLES * 1e3
        print(
            f"{entries:>36,}  {median(appends_s[entries]) * 1e3:9.3f}  {mean_ms:6.3f}  "
            f"{median(first_s[entries]) * 1e3:24.1f}"
        )
    ratios = [median(took[length]) / median(took[SHORT_LENGTH]) for took in (appends_s, first_s)]
    print(f"{'ratio':>36}  {ratios[0]:9.2f}  {'':6}  {ratios[1]:24.2f}")
    took_s = timed_s(lambda: verify(store, {}))
    print(
        f"verify reads and checks all {length + SHORT_LENGTH + 2 * SAMPLES:,} entries: {took_s:.1f} s",
        flush=True,
    )


def write_until_killed(root: Path, me: int, answers: Path) -> None:
    """Open and close runs in a month, and reserve in a shared account. Write each answer to `answers`."""
    ledger = Ledger(FolderStore(root), WallClock(), f"pod-{me}")
    with answers.open("a", buffering=1) as file:
        for number in range(10**9):
            run = f"run-{me}-{number}"
            ledger.open(run, CENT)
            file.write(f"{run} open\n")
            ledger.reserve("shared", run, "work", 1, CENT)
            file.write(f"shared reserve/{run}\n")
            ledger.close(run)
            file.write(f"{run} close\n")


def kills(root: Path, count: int) -> None:
    """Run four writers at a time. Each is killed at a random moment and replaced by another."""
    rng, ended = random.Random(7), 0
    (root / "answers").mkdir(parents=True)
    Ledger(FolderStore(root), WallClock()).open("shared", PLENTY)
    living: list[Any] = []
    while ended < count or living:
        while len(living) < 4 and ended + len(living) < count:
            me = ended + len(living) + len(list((root / "answers").iterdir()))
            living.append(FORKS.Process(target=write_until_killed, args=(root, me, root / f"answers/{me}")))
            living[-1].start()
        time.sleep(rng.uniform(0.02, 0.12))
        victim = living.pop(rng.randrange(len(living)))
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        ended += 1
    found = verify(FolderStore(root), {})
    ids = {
        f"{state.account} reserve/{reservation}"
        for state in found.accounts
        for reservation in (*state.reservations, *state.settled_usd)
    }
    ids |= {f"{state.account} open" for state in found.accounts} | {
        f"{state.account} close" for state in found.accounts if state.closed
    }
    answers = [line for file in (root / "answers").iterdir() for line in file.read_text().splitlines()]
    lost = [line for line in answers if line not in ids]
    print(
        f"\n{count} writers killed: {len(answers):,} answers, {len(lost)} of them lost; "
        f"{found.entries:,} entries, all valid; {len(found.unfinished)} left for a repair",
        flush=True,
    )


def postgres(folder: Path, clients: int) -> None:
    """Measure inserts per second into a new PostgreSQL cluster, flushed at each commit as by default."""
    if not PG_BIN or not (PG_BIN[-1] / "pgbench").exists():
        print("PostgreSQL: skipped, it is not installed (apt-get install postgresql)")
        return
    data = folder / "pg"
    data.mkdir()
    folder.chmod(0o755)
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(data, "postgres")

    def pg(command: str) -> str:
        tool, *arguments = shlex.split(command)
        run = [*user, str(PG_BIN[-1] / tool), *arguments]
        return subprocess.run(run, check=True, capture_output=True, text=True, cwd="/").stdout

    pg(f"initdb -D {data}/db -A trust -U bench")
    (data / "insert.sql").write_text(INSERT)
    options = f"-k {data} -h '' -c max_connections={clients + 10}"
    pg(f"pg_ctl -D {data}/db -w -l {data}/log -o {shlex.quote(options)} start")
    try:
        pg(f"psql -h {data} -U bench -d postgres -c {shlex.quote(CREATE_TABLE)}")
        for count in (1, clients):
            insert = f"-T {PG_SECONDS} -f {data}/insert.sql postgres"
            output = pg(f"pgbench -h {data} -U bench -n -c {count} {insert}")
            rate = float(next(line for line in output.splitlines() if line.startswith("tps")).split()[2])
            print(f"{f'PostgreSQL, {count} clients':>36}  {'-':>4}  {'-':>10}  {rate:9.0f}", flush=True)
    finally:
        pg(f"pg_ctl -D {data}/db -m immediate stop")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--entries", type=int, default=50, help="per process")
    parser.add_argument("--length", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument(
        "--stores",
        nargs="+",
        choices=("S3", "folder"),
        default=["S3", "folder"],
        help="for the contention part",
    )
    parser.add_argument("--only", choices=("contention", "length", "kills"))
    options = parser.parse_args()
    os.environ |= environment(ADMIN)
    print(describe())
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=FAST) as fast:
        if options.only in (None, "contention"):
            server = S3Server(Path(folder) / "server", volumes=60)
            server.start()
            try:
                contention(server, Path(folder), options.processes, options.entries, options.stores)
            finally:
                server.kill()
            postgres(Path(folder), options.processes)
        if options.only in (None, "length"):
            lengths(Path(fast) / "long", options.length)
        if options.only in (None, "kills"):
            kills(Path(fast) / "kills", options.kills)


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
