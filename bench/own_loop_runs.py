"""Runs of the training scripts in bench/scripts: inside a budget, with troubles, and without a budget."""

from __future__ import annotations

import difflib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import psutil
import yaml
from cli import SHOESTRING, process_tree, shoestring

SCRIPTS = Path(__file__).with_name("scripts")
GRACE_S, RESUME_S, ENDED_LATE_S = 1.0, 40.0, 60.0
STOPPED_S, LOG_READ_S = 0.05, 0.25
# $0.90 an hour: six decimals of a dollar are 4 ms, and twice as much is still a plausible price of a core.
USD_PER_S = 0.00025
LAST_SHARE = 0.05


@dataclass(frozen=True)
class TrainingScript:
    """A script in two versions. `budgeted`: the one with a budget, which is made by its patch."""

    name: str
    data: Path
    before: Path
    budgeted: Path

    def changed_lines(self) -> int:
        """Return the lines of the budgeted version that are new or different; blank ones do not count."""
        old, new = self.before.read_text().splitlines(), self.budgeted.read_text().splitlines()
        return sum(1 for line in difflib.ndiff(old, new) if line.startswith("+ ") and line[2:].strip())

    def arguments(self, is_budgeted: bool, steps: int, seed: int, log: Path) -> list[str]:
        path = self.budgeted if is_budgeted else self.before
        named = {"--data": self.data, "--steps": steps, "--seed": seed, "--log": log}
        return [sys.executable, str(path), *(str(word) for pair in named.items() for word in pair)]


def patched_script(name: str, data: Path, folder: Path) -> TrainingScript:
    """Return a script whose budgeted version is made in a folder."""
    before, budgeted = SCRIPTS / f"{name}.py", folder / f"{name}.py"
    budgeted.write_text(before.read_text())
    patch = [str(SCRIPTS / f"{name}.patch")]
    subprocess.run(["git", "apply", "--unidiff-zero", *patch], cwd=folder, check=True, timeout=20)
    return TrainingScript(name, data, before, budgeted)


@dataclass(frozen=True)
class LoggedTraining:
    """The log of a training. `ended_with_loss`: a validation is its last line."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    ended_with_loss: bool

    @property
    def last_rate_share(self) -> float:
        """The mean rate of the last 5% of the steps, as a share of the highest one; 1 without steps."""
        if not self.rates:
            return 1.0
        last = self.rates[-max(1, round(LAST_SHARE * len(self.rates))) :]
        return mean(last) / max(self.rates)

    @property
    def loss(self) -> float:
        return self.losses[-1] if self.ended_with_loss else float("nan")


def read_log(path: Path) -> LoggedTraining:
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    found = {name: tuple(float(line[1]) for line in lines if line[0] == name) for name in ("rate", "loss")}
    return LoggedTraining(found["rate"], found["loss"], bool(lines) and lines[-1][0] == "loss")


@dataclass
class BudgetedRun:
    """A run of `shoestring exec`. `paid`: (seconds by an outside stopwatch, price), for each part of it."""

    script: TrainingScript
    seed: int
    seconds: float
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.log, self.paid = self.folder / "log.txt", list[tuple[float, float]]()
        self.world, self.store = self.folder / "world.yaml", self.folder / "store"
        made = shoestring("world", "init", "--out", str(self.world), "--store", str(self.store))
        assert made.code == 0, made.stderr
        self.set_price(1.0)

    @property
    def cost_share(self) -> float:
        """The cost of all attempts by the stopwatch, as a share of the budget."""
        return sum(seconds * price for seconds, price in self.paid) / (self.seconds * USD_PER_S)

    def set_price(self, factor: float) -> None:
        world = yaml.safe_load(self.world.read_text())
        world["policy"] = {"floating_markets": ["on-demand"]}
        for row in world["prices"]:
            row["usd_per_hour"] = f"{3600 * USD_PER_S * factor:.6f}"
        new = self.world.with_suffix(".new")
        new.write_text(yaml.safe_dump(world))
        new.replace(self.world)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        where = ["--world", str(self.world), "--store", str(self.store)]
        with (self.folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*SHOESTRING, "exec", *where, *words],
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=one_thread(),
            )

    def train(self, trouble: Callable[[BudgetedRun, subprocess.Popen[bytes], float], None]) -> LoggedTraining:
        """Start the script, cause the trouble, and wait for the end."""
        began_s = time.monotonic()
        argv = self.script.arguments(True, 10**6, self.seed, self.log)
        dollars = f"{self.seconds * USD_PER_S:.6f}"
        process = self.start("--budget", dollars, "--cores", "1", "--grace", str(GRACE_S), "--", *argv)
        try:
            trouble(self, process, began_s)
        finally:
            kill_tree(process)
        return read_log(self.log)

    def output(self) -> str:
        return (self.folder / "output.txt").read_text()


def no_trouble(run: BudgetedRun, process: subprocess.Popen[bytes], began_s: float) -> None:
    process.wait(run.seconds + ENDED_LATE_S)
    run.paid.append((time.monotonic() - began_s, USD_PER_S))


def half_speed(run: BudgetedRun, process: subprocess.Popen[bytes], began_s: float) -> None:
    """From half of the budget on, the script's process is stopped for half of the time."""
    time.sleep(run.seconds / 2 - (time.monotonic() - began_s))
    scripts = [each for each in process_tree(process.pid) if is_script(each, run.script)]
    while process.poll() is None and time.monotonic() < began_s + run.seconds + ENDED_LATE_S:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for each in scripts:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            time.sleep(STOPPED_S)
    run.paid.append((time.monotonic() - began_s, USD_PER_S))


def double_price(run: BudgetedRun, process: subprocess.Popen[bytes], began_s: float) -> None:
    """From half of the budget on, a second costs twice as much."""
    time.sleep(run.seconds / 2 - (time.monotonic() - began_s))
    run.set_price(2.0)
    changed_s = time.monotonic()
    process.wait(run.seconds + ENDED_LATE_S)
    run.paid += [(changed_s - began_s, USD_PER_S), (time.monotonic() - changed_s, 2 * USD_PER_S)]


def kill_and_resume(run: BudgetedRun, process: subprocess.Popen[bytes], began_s: float) -> None:
    """After a third of the budget, all processes are killed; the run is resumed as soon as it may be."""
    time.sleep(run.seconds / 3 - (time.monotonic() - began_s))
    kill_tree(process)
    run.paid.append((time.monotonic() - began_s, USD_PER_S))
    (run_id,) = (path.name for path in (run.store / "runs").iterdir())
    due_s = time.monotonic() + RESUME_S
    while time.monotonic() < due_s:
        began_s, steps = time.monotonic(), len(read_log(run.log).rates)
        again = run.start("--resume", run_id)
        try:
            again.wait(run.seconds + ENDED_LATE_S)
        finally:
            kill_tree(again)
        if len(read_log(run.log).rates) > steps:
            run.paid.append((time.monotonic() - began_s, USD_PER_S))
            return
        # Refused: the killed attempt may still run, as far as its heartbeats show.
        time.sleep(0.5)


TROUBLES = {"half speed": half_speed, "double price": double_price, "kill -9": kill_and_resume}
CUT_SHARES = {"half speed": 0.75, "double price": 0.75, "kill -9": 1.0}
"""When the script without a budget is cut off, as a share of the budget's seconds: half of the steps, or of
the time, is lost in the second half. It is never killed, so it loses no work before that."""


def is_script(process: psutil.Process, script: TrainingScript) -> bool:
    try:
        return process.cmdline()[1:2] == [str(script.budgeted)]
    except psutil.NoSuchProcess:
        return False


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    for each in process_tree(process.pid) if process.poll() is None else ():
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def replay_and_cut(
    script: TrainingScript, seed: int, steps: int, seconds: float, folder: Path
) -> tuple[LoggedTraining, list[tuple[float, float]]]:
    """Run the script without a budget twice at once: over the steps, and over thrice as many for `seconds`.

    Returns the log of the first, and (seconds, loss) of each validation of the second.
    """
    logs = [folder / f"{name}.txt" for name in ("hindsight", "cut")]
    began_s = time.monotonic()
    replay, cut = (
        subprocess.Popen(
            script.arguments(False, steps * factor, seed, log), stdout=subprocess.DEVNULL, env=one_thread()
        )
        for factor, log in zip((1, 3), logs, strict=True)
    )
    losses = list[tuple[float, float]]()
    try:
        while (gone_s := time.monotonic() - began_s) < seconds:
            losses += [(gone_s, loss) for loss in read_log(logs[1]).losses[len(losses) :]]
            time.sleep(LOG_READ_S)
        cut.kill()
        replay.wait(10 * seconds)
    finally:
        for process in (replay, cut):
            process.kill()
            process.wait()
    return read_log(logs[0]), losses
