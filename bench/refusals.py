"""Claim: what a refusal of `plan` or `run` names is accepted, and 1% less is refused: budgets and deadlines.
A run with the named budget is not stopped by what its supervisor keeps back, also on spot.

python bench/refusals.py [--refusals 2000] [--commands 12] [--spot-runs 9] [--processes 4] [--seed 0]
                         [--quick]

Each refusal is of the flights recipe in a random world: this laptop or the cloud example, with random prices
and start-up times, and a random budget and deadline. Both commands refuse by `admission_decision`. Here it
is called once a world, and its decision compared with one from a question whose data, prices and code were
read once for all requests of that world; the other requests take this shorter way, by the same functions. A
sample goes through the commands themselves, `plan` and `run`. A budget is named to the micro-dollar, a
deadline to three digits.

The spot runs are of a small table on this laptop, with 1 to 1.04 times the budget that was named, where spot
costs 0.28 to 0.5 of on-demand. A run that is stopped is WRONG if at most one of its stages cost more than its
P95, and by at most a fifth. Otherwise it has overrun, as runs do on a busy machine. --quick: at most two
minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from cli import PLANES
from machine import describe

from shoestring.backends.local import open_local_world
from shoestring.config.world import World
from shoestring.core.types import Need
from shoestring.data.recipe_files import find_recipe
from shoestring.pricing.templates import cloud_world, laptop_world
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.runtime.admission.admit import admission_decision
from shoestring.runtime.admission.extension_headroom import OVERRUN_SHARE, decide_with_headroom
from shoestring.runtime.admission.first_request import recipe_request, stage_request_at_start
from shoestring.runtime.admission.question.build import question_in
from shoestring.runtime.admission.question.context import read_context
from shoestring.runtime.admission.stage_budgets import stage_budgets
from shoestring.runtime.admission.stages import training_needs

AMPLE_USD = Decimal(1000)
REQUESTS_A_WORLD = 20
QUICK = {"refusals": 100, "commands": 1, "spot_runs": 2}
ON_DEMAND = Decimal("0.08")


def laptop(folder: Path) -> dict[str, Any]:
    """Return the world of a laptop with two cores."""
    return laptop_world(2, 16.0, str(folder / "store"), datetime.now(UTC).date())


def random_world(rng: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Return the content of a world file: pools with random start-up times, and random prices."""
    cloud = bool(rng.random() < 0.5)
    content = cloud_world(str(folder / "store")) if cloud else laptop(folder)
    for pool in content["pools"]:
        pool["startup_s"] = round(float(rng.uniform(0, 90)), 1)
    for row in content.get("prices", ()):
        row["usd_per_hour"] = f"{float(row['usd_per_hour']) * rng.uniform(0.6, 3):.6f}"
    return content | {"purpose": "plan"}


class Refusals:
    """The refusals of one world."""

    def __init__(self, world: World, needs: tuple[Need, ...]) -> None:
        self.world, self.counts = world, Counter[str]()
        recipe = find_recipe("flights")
        self.request = recipe_request("plan", recipe, needs, AMPLE_USD, 1.0, recipe.seed, target_notes=())
        self.stages = stage_budgets(world, self.request.job)
        self.first_stage = stage_request_at_start(world, self.request, Decimal(0), self.stages)
        self.read = read_context(world, self.first_stage)

    def decided(self, budget_usd: Decimal, deadline_s: float | None) -> Decision:
        """Return the decision as admission makes it, in the context that was read for this world."""
        request = replace(self.first_stage, budget_usd=budget_usd, deadline_left_s=deadline_s)
        question = question_in(self.read, self.world, request)
        return decide_with_headroom(question, enumerate_offers(question), self.world.policy)

    def compare(self, budget_usd: Decimal, deadline_s: float | None) -> None:
        """Compare the decision with that of `plan` and of admission."""
        request = self.request.with_terms(budget_usd=budget_usd, deadline_s=deadline_s)
        whole = admission_decision(self.world, request, Decimal(0), self.stages)
        short = self.decided(budget_usd, deadline_s)
        named = [
            (each.choice is None, each.smallest_budget_usd, each.smallest_deadline_s, each.smallest_both)
            for each in (whole, short)
        ]
        self.counts["compared"] += 1
        self.counts["compared: WRONG"] += named[0] != named[1]

    def check(self, budget_usd: Decimal, deadline_s: float | None) -> None:
        """Refuse one request, and submit what the refusal names, and 1% less."""
        decision = self.decided(budget_usd, deadline_s)
        if decision.choice is not None:
            self.counts["accepted"] += 1
            return
        named_usd, named_s, both = (
            decision.smallest_budget_usd,
            decision.smallest_deadline_s,
            decision.smallest_both,
        )
        if named_usd is not None:
            self._submit("budget", lambda share: (named_usd * share, deadline_s))
        if named_s is not None:
            self._submit("deadline", lambda share: (budget_usd, named_s * float(share)))
        if both is not None:
            self._submit("both, budget", lambda share: (both.budget_usd * share, both.deadline_s))
            self._submit("both, deadline", lambda share: (both.budget_usd, both.deadline_s * float(share)))
        self.counts["refusals"] += 1
        self.counts["nothing named"] += named_usd is None and named_s is None and both is None

    def _submit(self, what: str, limits: Any) -> None:
        accepted = self.decided(*limits(Decimal(1))).choice is not None
        refused = self.decided(*limits(Decimal("0.99"))).choice is None
        self.counts[f"{what}: named"] += 1
        self.counts[f"{what}: WRONG"] += not (accepted and refused)
        if not (accepted and refused):
            print(f"{what}: named {limits(Decimal(1))}, accepted {accepted}, 1% less refused {refused}")


def check_world(seed: int, number: int, needs: tuple[Need, ...]) -> Counter[str]:
    """Refuse random requests in a random world."""
    rng = np.random.default_rng([seed, number])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.yaml"
        path.write_text(yaml.safe_dump(random_world(rng, Path(folder))))
        refusals = Refusals(open_local_world(path), needs)
        for index in range(REQUESTS_A_WORLD):
            drawn_usd = Decimal(str(round(10 ** rng.uniform(-5, 0), 6)))
            budget_usd = AMPLE_USD if rng.random() < 0.3 else drawn_usd
            deadline_s = None if rng.random() < 0.2 else round(float(10 ** rng.uniform(0, 3.2)), 1)
            if index == 0:
                refusals.compare(budget_usd, deadline_s)
            refusals.check(budget_usd, deadline_s)
    return refusals.counts


def check_worlds(seed: int, refusals: int, processes: int) -> Counter[str]:
    """Refuse random requests in as many worlds as this many refusals take."""
    counts, needs, begun = Counter[str](), training_needs(), 0
    with ProcessPoolExecutor(processes) as pool:
        while counts["refusals"] < refusals:
            asked = [pool.submit(check_world, seed, begun + each, needs) for each in range(processes)]
            begun += processes
            for future in asked:
                counts.update(future.result())
    return counts


def check_commands(world_file: Path, rng: np.random.Generator, counts: Counter[str]) -> None:
    """Refuse one request of the commands, and submit what is named, and 1% less."""

    def exit_code(command: str, limits: Mapping[str, object]) -> tuple[int, str]:
        options = ["--budget", str(limits["budget"]), "--deadline", str(limits["deadline"])]
        where = ["--json", "--world", str(world_file)]
        line = [sys.executable, "-m", "shoestring", command, "flights", *options, *where]
        ran = subprocess.run(line, capture_output=True, text=True, cwd=world_file.parent)
        return ran.returncode, ran.stdout

    ample, short = {"budget": "100", "deadline": "100000"}, {"budget": "0.0001", "deadline": "9"}
    name = str(rng.choice(["budget", "deadline"]))
    field = "smallest_budget_usd" if name == "budget" else "smallest_deadline_s"
    code, out = exit_code("plan", ample | {name: short[name]})
    named = json.loads(out)[field]
    less = f"{Decimal(str(named)) * Decimal('0.99'):f}"
    by_run, run_out = exit_code("run", ample | {name: less})
    codes = (
        code,
        exit_code("plan", ample | {name: named})[0],
        exit_code("plan", ample | {name: less})[0],
        by_run,
    )
    # A refused run's summary has a field for the budget only; its deadline is in the reason.
    run_named = json.loads(run_out)[field] if by_run == 1 and name == "budget" else named
    counts[f"command, {name}: named"] += 1
    counts[f"command, {name}: WRONG"] += codes != (1, 0, 1, 1) or run_named != named
    if codes != (1, 0, 1, 1) or run_named != named:
        print(f"command, {name}: plan named {named}, run named {run_named}, exit codes {codes}")


def check_spot_run(rng: np.random.Generator, counts: Counter[str]) -> None:
    """Run a small table on spot with the budget that is named."""
    share, factor = (Decimal(str(round(rng.uniform(*ends), 3))) for ends in ((0.28, 0.5), (1.0, 1.04)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = laptop(folder)
        content["pools"] = [content["pools"][0] | {"markets": {"on-demand": {}, "spot": {}}}]
        row = content["prices"][0]
        prices = {"on-demand": ON_DEMAND, "spot": ON_DEMAND * share}
        content["prices"] = [row | {"market": each, "usd_per_hour": f"{prices[each]:f}"} for each in prices]
        (folder / "world.yaml").write_text(yaml.safe_dump(content))
        (folder / "planes.yaml").write_text(PLANES)

        def run(command: str, budget: str) -> dict[str, Any]:
            where = ["--json", "--world", "world.yaml"]
            line = [sys.executable, "-m", "shoestring", command, "planes.yaml", "--budget", budget, *where]
            ran = subprocess.run(line, capture_output=True, cwd=folder)
            return dict(json.loads(ran.stdout))

        named = Decimal(run("plan", "0.00001")["smallest_budget_usd"])
        summary, overruns = run("run", f"{named * factor:.6f}"), shares_of_p95_above_one(folder / "store")
    is_done, over = summary["status"] == "done", ", ".join(f"{each:.2f}" for each in overruns) or "no stage"
    has_overrun = len(overruns) > 1 or any(each > 1 + OVERRUN_SHARE for each in overruns)
    if not is_done:
        print(f"spot at {share}, {factor} of ${named}: above P95: {over}; {summary['reason']}")
    counts["spot run: started"] += 1
    counts["spot run: WRONG"] += not is_done and not has_overrun
    counts["spot run: has overrun"] += not is_done and has_overrun


def shares_of_p95_above_one(store: Path) -> list[Decimal]:
    """Return what the stages that cost more than their P95 cost, as shares of it."""
    shares = []
    for path in store.glob("runs/*/receipts/*.json"):
        receipt = json.loads(path.read_text())
        decision = json.loads((store / receipt["decision_key"]).read_text())
        shares.append(Decimal(receipt["spent_usd"]) / Decimal(decision["choice"]["p95_usd"]))
    return [share for share in shares if share > 1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--refusals", type=int, default=2000)
    parser.add_argument("--commands", type=int, default=12)
    parser.add_argument("--spot-runs", type=int, default=9)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="at most two minutes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK)
    begun, rng = time.perf_counter(), np.random.default_rng(arguments.seed)
    counts = check_worlds(arguments.seed, arguments.refusals, arguments.processes)
    print(f"through the functions: {dict(sorted(counts.items()))}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.yaml"
        path.write_text(yaml.safe_dump(laptop(Path(folder))))
        for _ in range(arguments.commands):
            check_commands(path, rng, counts)
    for _ in range(arguments.spot_runs):
        check_spot_run(rng, counts)
    print(describe())
    for name in sorted(counts):
        print(f"{name:<28}{counts[name]:>8}")
    print(f"{counts['refusals']} refusals, {time.perf_counter() - begun:.0f} s")
    sys.exit(any(count for name, count in counts.items() if name.endswith("WRONG")))


if __name__ == "__main__":
    main()
