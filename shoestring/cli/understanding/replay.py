"""`shoestring replay`: recorded decisions, made again and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shoestring.cli.decision_files import read_decision_file
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core import store_layout
from shoestring.core.errors import ShoestringError, UsageError
from shoestring.core.interfaces import Store
from shoestring.data.run_records import open_run
from shoestring.reporting.publish import changed_summary
from shoestring.routing.analysis.replay import replay as replay_decision
from shoestring.spending.audit.records import (
    changed_decision,
    check_receipts,
    reserved_decisions,
    run_of_account,
)
from shoestring.spending.audit.run_records import changed_records
from shoestring.spending.audit.verify import load_anchors
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.ledger import account_names
from shoestring.training.control.controller import CONTROLLER_VERSION
from shoestring.training.replay import replay_differences
from shoestring.training.window_log import read_log

MAX_LINES = 40
"""Lines of each difference that are shown when several decisions are replayed."""

SUMMARIES = {
    "missing": "a decision that the ledger reserved money for is missing",
    "changed": "not the decision that the ledger reserved money for",
    "differs": "this version decides differently",
    "not-replayable": "made by another version of the algorithm, so it cannot be replayed here",
    "record": "not as it was when its run ended",
    "training": "this version trains differently",
}
"""The last line for each verdict that is not "same"."""

WHAT = {"record": "records", "training": "trainings"}
"""What is counted for a verdict about no decision."""


TargetArgument = Annotated[
    str | None,
    typer.Argument(help="file of a decision, folder of decisions, or id of a run; default: all runs"),
]


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of replaying one decision, and the text to show with it. Verdict "record": `name` is another
    record of the run. `windows`: those of a training, which was replayed instead of a decision.
    """

    name: str
    verdict: str
    text: str
    windows: int = 0

    @property
    def is_decision(self) -> bool:
        return self.verdict != "record" and not self.windows


@takes_world
def replay(
    target: TargetArgument = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Make recorded decisions again and compare every byte.

    Each decision is made from the question in its record. The plans and changes of a training are made again
    from the measurements in its log. A decision in a store is also compared with the digest that the ledger
    reserved money for, the receipts and results of a run with the digests that the ledger holds since the run
    ended, and its summary with its records. The exit code is 1 if a decision, a training or another record
    differs, was changed, is missing, or if a decision was made by another version of the algorithm, which
    cannot be replayed.
    """
    found = list(_checked(target, source))
    typer.echo(json.dumps(_as_json(found), indent=1) if as_json else _as_text(found))
    for verdict, sentence in SUMMARIES.items():
        if named := [each.name for each in found if each.verdict == verdict]:
            what = WHAT.get(verdict) or f"of {count_decisions(found)} decisions"
            which = named[0] if len(named) == 1 else f"{len(named)} {what}"
            typer.echo(f"shoestring: {which}: {sentence}", err=True)
    if any(each.verdict != "same" for each in found):
        raise typer.Exit(1)


def count_decisions(found: list[Checked]) -> int:
    return sum(each.is_decision for each in found)


def count_same(found: list[Checked]) -> int:
    return sum(each.is_decision and each.verdict == "same" for each in found)


def _as_json(found: list[Checked]) -> dict[str, Any]:
    def texts(verdict: str) -> dict[str, str]:
        return {each.name: each.text for each in found if each.verdict == verdict}

    return {
        "decisions": count_decisions(found),
        "same": count_same(found),
        "differences": texts("differs"),
        "changed": texts("changed"),
        "missing": texts("missing"),
        "not_replayable": texts("not-replayable"),
        "records": texts("record"),
        "windows": sum(each.windows for each in found),
        "trainings": texts("training"),
    }


def _as_text(found: list[Checked]) -> str:
    same = count_same(found)
    if same == len(found) == 1:
        return f"{found[0].name}: the same decision, byte for byte"
    max_lines, parts = MAX_LINES if len(found) > 1 else None, []
    for each in found:
        if each.verdict != "same":
            lines = each.text.splitlines()
            parts += [f"{each.name}:", *lines[:max_lines]]
            if max_lines is not None and len(lines) > max_lines:
                parts.append(f"... {len(lines) - max_lines} more lines")
    count = count_decisions(found)
    windows = sum(each.windows for each in found)
    trained = f"; {windows:,} windows of training replayed" if windows else ""
    return "\n".join([*parts, f"{count} decisions replayed: {same} the same, byte for byte{trained}"])


def _check(name: str, data: bytes, changed: str = "") -> Checked:
    """Return what a replay finds. `changed`: why it is not the decision of the ledger; empty: it is.

    A record that is no decision, or of another schema version, counts as one that differs.
    """
    if changed:
        return Checked(name, "changed", f"the decision {changed}")
    try:
        found = replay_decision(data)
    except ShoestringError as error:
        return Checked(name, "differs", str(error))
    return Checked(name, found.verdict, found.text)


def _checked(target: str | None, source: WorldSource) -> Iterator[Checked]:
    """Yield what is found about each decision. Raises UsageError, UnknownName, LedgerCorrupt."""
    path = Path(target) if target else None
    if path is not None and (path.is_file() or path.suffix == ".json"):
        yield _check(target or "", read_decision_file(path))
    elif path is not None and path.is_dir():
        files = sorted(path.rglob("decisions/*.json")) or sorted(path.glob("*.json"))
        if not files:
            raise UsageError(f"{path} contains no decision")
        yield from (_check(str(file), file.read_bytes()) for file in files)
    else:
        yield from _checked_in_store(source.open().store, target or "")


def _checked_in_store(store: Store, run: str) -> Iterator[Checked]:
    """Yield what is found about each decision of a run, or of all runs if `run` is empty.

    Raises:
        LedgerCorrupt: a receipt does not have the dollars that the ledger holds.
    """
    run_id = open_run(store, named_run_id(store, run)).run_id if run else ""
    prefix = store_layout.run(run_id) if run_id else store_layout.RUNS
    keys = [key for key in store.list(prefix) if key.split("/")[2:3] == ["decisions"]]
    if not keys:
        raise UsageError("the store contains no decision to replay")
    anchors = load_anchors(store, prefix)  # Before the chains: an attempt is settled before its receipt.
    accounts = [name for name in account_names(store) if run_id in ("", run_of_account(name))]
    chains = {name: AccountChain(store, name) for name in accounts}
    check_receipts(chains, anchors)
    reserved = {key: (sha256, entry) for key, sha256, entry in reserved_decisions(chains.values())}
    received = {store_layout.decision(run, each.attempt) for run, found in anchors.items() for each in found}
    changed = {
        key: reason
        for key in keys
        if key in reserved and (reason := changed_decision(store.fetch(key).read_bytes(), *reserved[key]))
    }
    missing = sorted((received & reserved.keys()) - set(keys))
    for key in missing:
        yield Checked(key, "missing", "its attempt has a receipt, and money was reserved for it")
    for key in keys:
        yield _check(key, store.fetch(key).read_bytes(), changed.get(key, ""))
    for each in changed_records(store, chains):
        if each.key not in (*missing, *changed):
            yield Checked(each.key, "record", each.sentence)
    for run in sorted({key.split("/")[1] for key in keys}):
        if reason := changed_summary(store, run):
            yield Checked(store_layout.summary(run), "record", reason)
        yield from _check_training(store, run)


def _check_training(store: Store, run_id: str) -> Iterator[Checked]:
    """Yield what a replay of a run's training finds, if its log is of this version of the controller."""
    log, key = read_log(store, run_id), store_layout.curve(run_id)
    if log is None or log.controller != CONTROLLER_VERSION:
        return
    differences = list(replay_differences(log))
    yield Checked(key, "training" if differences else "same", "\n".join(differences), len(log.windows))
