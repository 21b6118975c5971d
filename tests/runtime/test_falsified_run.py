"""A falsified record of a real run is found by the ledger or by a replay, or only by heads kept elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import Finished, shoestring

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, LedgerCorrupt
from shoestring.core.record import record_bytes
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.spending.audit.verify import load_anchors, verify


@pytest.fixture
def store(whole_run: Path, tmp_path: Path) -> FolderStore:
    """A copy of the records of a real run."""
    for name in ("ledger", "runs"):
        shutil.copytree(whole_run / "store" / name, tmp_path / "store" / name)
    return FolderStore(tmp_path / "store")


def falsify(store: FolderStore, record: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a record of the run, in the form in which records are written."""
    (path,) = store.root.glob(f"runs/*/{record}")
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content, sort_keys=True, indent=1) + "\n")
    return path


def check(store: FolderStore) -> None:
    verify(store, load_anchors(store))


DECISIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a price under its question": lambda it: it["question"]["quotes"][0].update(usd_per_hour="0.000001"),
    "its rows": lambda it: it["question"].update(rows=it["question"]["rows"] * 1000),
    "a need": lambda it: it["question"]["needs"][0].update(setup_s=0.0),
    "its choice": lambda it: it["choice"].update(est_usd="0.000001"),
    "a candidate": lambda it: it["candidates"]["pools"].reverse(),
    "a refusal": lambda it: it["refusals"][0].update(sentence="it was too slow"),
    "its placement": lambda it: it["placement"].update(cpu="64"),
    "its plan": lambda it: it["plan"][0].update(est_s=0.001),
}


@pytest.mark.parametrize("change", DECISIONS.values(), ids=DECISIONS)
def test_a_changed_decision_is_found_by_the_ledger_and_by_a_replay(
    store: FolderStore, change: Callable[[dict[str, Any]], object]
) -> None:
    check(store)
    path = falsify(store, "decisions/preprocess-1.json", change)
    assert replay(path.read_bytes()).verdict == "differs"
    with pytest.raises(LedgerCorrupt, match=r"decisions/preprocess-1\.json, which was changed: entry \d+ of"):
        check(store)


def test_a_changed_question_that_has_the_same_answer_is_found_by_the_ledger(store: FolderStore) -> None:
    path = falsify(store, "decisions/preprocess-1.json", lambda it: it["question"].update(seed=8))
    assert replay(path.read_bytes()).verdict == "same"
    with pytest.raises(LedgerCorrupt, match="which was changed"):
        check(store)


def test_a_decision_and_its_offers_made_again_from_another_question_are_found_by_the_ledger(
    store: FolderStore,
) -> None:
    path = falsify(store, "decisions/preprocess-1.json", DECISIONS["its rows"])
    path.write_bytes(record_bytes(decide(Decision.model_validate_json(path.read_bytes()).question)))
    assert replay(path.read_bytes()).verdict == "same"
    with pytest.raises(LedgerCorrupt, match="which was changed"):
        check(store)


def test_a_replay_of_the_run_names_the_decision_that_the_ledger_did_not_reserve_for(
    store: FolderStore, finished: Finished
) -> None:
    run_id = next(store.root.glob("runs/*")).name
    key = f"runs/{run_id}/decisions/preprocess-1.json"

    def ran() -> Any:
        return finished.again("replay", run_id, "--json", store=store.root)

    assert ran().code == 0
    falsify(store, "decisions/preprocess-1.json", lambda it: it["algorithm"].update(algorithm_version=1))
    found = ran()
    assert found.code == 1 and f"{key}: not the decision that the ledger reserved money for" in found.err
    assert list(found.json["changed"]) == [key] and found.json["not_replayable"] == {}
    alone = shoestring("replay", store.root / key, "--json")
    assert alone.code == 1 and "made by another version of the algorithm" in alone.err
    assert (alone.json["differences"], len(alone.json["not_replayable"])) == ({}, 1)


def test_a_missing_decision_of_an_attempt_with_a_receipt_is_found(store: FolderStore) -> None:
    (path,) = store.root.glob("runs/*/decisions/train-1.json")
    path.unlink()
    with pytest.raises(
        LedgerCorrupt, match=r"train-1\.json, which is missing, but its attempt has a receipt"
    ):
        check(store)


def test_a_replay_of_the_run_finds_a_missing_decision_and_changed_dollars(
    store: FolderStore, finished: Finished
) -> None:
    run = next(store.root.glob("runs/*"))
    falsify(store, "receipts/train-1.json", lambda it: it.update(spent_usd="0.000001"))
    ran = finished.again("replay", run.name, store=store.root)
    assert ran.code == 1 and "the receipt of train-1 says that $0.000001 was spent" in ran.err
    shutil.copytree(finished.store / "runs" / run.name / "receipts", run / "receipts", dirs_exist_ok=True)
    (run / "decisions" / "train-1.json").unlink()
    ran = finished.again("replay", run.name, "--json", store=store.root)
    key = f"runs/{run.name}/decisions/train-1.json"
    assert ran.code == 1 and f"{key}: a decision that the ledger reserved money for is missing" in ran.err
    assert list(ran.json["missing"]) == [key]


@pytest.mark.parametrize("by_usd", ["0.000001", "-0.000001", "9"])
def test_changed_dollars_of_a_receipt_are_found(store: FolderStore, by_usd: str) -> None:
    def change(receipt: dict[str, Any]) -> None:
        receipt["spent_usd"] = str(Decimal(receipt["spent_usd"]) + Decimal(by_usd))

    falsify(store, "receipts/train-1.json", change)
    with pytest.raises(LedgerCorrupt, match=r"receipt of train-1 says .* the ledger holds .* was changed"):
        check(store)


def test_an_overrun_that_the_ledger_does_not_hold_is_found(store: FolderStore) -> None:
    falsify(store, "receipts/train-1.json", lambda it: it.update(overrun_usd="0.000001"))
    with pytest.raises(LedgerCorrupt, match=r"\$0\.000001 overrun, and the ledger holds"):
        check(store)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.update(stage="other", spent_usd="0.000000"),
        lambda it: it.update(attempt=2, spent_usd="0.000000"),
        lambda it: it.update(run_id="other"),
    ],
)
def test_a_receipt_that_names_another_attempt_is_found(
    store: FolderStore, change: Callable[[dict[str, Any]], object]
) -> None:
    falsify(store, "receipts/train-1.json", change)
    with pytest.raises(DataError, match="it was moved or changed"):
        check(store)


def test_a_run_put_back_to_an_older_state_is_found_only_by_heads_kept_elsewhere(
    store: FolderStore, finished: Finished, tmp_path: Path
) -> None:
    """The docs name it: also a change of the whole store, or of its end with all that names it."""
    heads = tmp_path / "heads.txt"
    heads.write_text(finished.again("ledger", "heads", store=store.root).out)
    assert len(heads.read_text().splitlines()) == 2
    given = ("ledger", "verify", "--store", store.root)
    against = shoestring(*given, "--against", heads)
    assert against.code == 0 and f"2 heads of {heads} are in the ledger" in against.out
    run = next(store.root.glob("runs/*"))
    for receipt in run.glob("receipts/*.json"):
        receipt.unlink()
    month = next(path for path in store.root.glob("ledger/*") if path.name != run.name)
    for account, kept in ((store.root / "ledger" / run.name, 2), (month, 2)):
        (account / "head.json").unlink()
        for entry in sorted(account.glob("0*.json"))[kept:]:
            entry.unlink()
    assert shoestring(*given).code == 0
    against = shoestring(*given, "--against", heads)
    assert against.code == 1 and "the chain's end was removed" in against.err


def test_the_summary_of_the_exit_step_is_a_list_of_heads(finished: Finished) -> None:
    kept = finished.out / "summary.json"
    heads = {each["account"] for each in json.loads(kept.read_bytes())["ledger_heads"]}
    run_id = finished.ran.json["run_id"]
    (month,) = heads - {run_id}
    assert re.fullmatch(r"\d{4}-\d{2}", month)
    ran = shoestring("ledger", "verify", "--store", finished.store, "--against", kept)
    assert ran.code == 0 and f"2 heads of {kept}" in ran.out
