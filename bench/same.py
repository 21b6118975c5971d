"""Claim: two runs with the same seed, world and data make the same choices; one question always gives the
same decision.

Two runs of flights in two stores that share one volume probe are compared: where each stage was placed, what
it wrote, and the digests of the data sets. Then `plan` runs five times in one store, and the bytes of the
decisions are compared, apart from the time of the question.

python bench/same.py
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from cli import shoestring
from machine import describe

PLANS = 5


def chosen(summary: dict[str, object]) -> list[tuple[str, ...]]:
    return [
        tuple(str(stage[name]) for name in ("name", "pool", "market", "format"))
        for stage in summary["stages"]
    ]  # type: ignore[attr-defined]


def main() -> None:
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for name in ("one", "two"):
            store = Path(folder, name)
            if name == "two":
                # The volume probe is an input, too: a second probe would differ by measurement noise.
                shutil.copytree(Path(folder, "one", "learned", "probes"), store / "learned" / "probes")
            ran = shoestring(
                "run",
                "flights",
                "--seed",
                "3",
                "--store",
                str(store),
                "--out",
                f"{folder}/{name}-out",
                "--json",
            )
            assert ran.code == 0, ran.stderr
            manifests = sorted(path.stem for path in (store / "datasets").rglob("*.json"))
            runs.append((chosen(ran.summary), manifests))
            print(
                name,
                *(" ".join(stage) for stage in runs[-1][0]),
                *(digest[:12] for digest in manifests),
                sep="\n  ",
            )
        plans = set()
        for _ in range(PLANS):
            plan = json.loads(shoestring("plan", "flights", "--store", f"{folder}/one", "--json").stdout)
            del plan["question"]["asked_at"]
            plans.add(hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest())
    choices, datasets = ("the same" if one == two else "DIFFER" for one, two in zip(*runs, strict=True))
    print(f"choices {choices}, data sets {datasets}")
    print(f"{PLANS} plans of one store: {len(plans)} distinct")


if __name__ == "__main__":
    main()
