"""Every value of every record of a real run: a change is named by the ledger or by a replay, or the docs say
that nothing finds it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Finished

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, LedgerCorrupt
from shoestring.core.record import record_bytes
from shoestring.reporting.publish import changed_summary
from shoestring.spending.audit.verify import load_anchors, open_ledger_folder, verify
from shoestring.spending.ledger.chain import AccountChain

MONEY_PAGE = Path(__file__).parents[2] / "docs" / "money.md"
CLOSED_BY = r"ledger/slice-[\w-]+/\d{8}\.json: ended the run with"
Leaf = tuple[str | int, ...]
LEAVES_A_RECORD = 25
"""Of a record with more leaves, such as a decision, a fixed random choice is changed."""


def not_found() -> tuple[str, ...]:
    """Return the records of a run that the docs list as not compared, by how their keys begin."""
    (row,) = re.findall(r"\| of a run: (.*?) \| not found", MONEY_PAGE.read_text(encoding="utf-8"))
    return tuple(re.findall(r"`([^`]+)`", row))


@pytest.fixture(scope="module")
def copied(whole_run: Path, tmp_path_factory: pytest.TempPathFactory) -> FolderStore:
    """The records of a real run. Each test leaves them as they were."""
    folder = tmp_path_factory.mktemp("records")
    for name in ("ledger", "runs"):
        shutil.copytree(whole_run / "store" / name, folder / name)
    return FolderStore(folder)


@pytest.fixture
def store(copied: FolderStore, tmp_path: Path) -> FolderStore:
    return FolderStore(shutil.copytree(copied.root, tmp_path / "store"))


def leaves(value: Any, path: Leaf = ()) -> Iterator[Leaf]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from leaves(each, (*path, key))
    if not inside:
        yield path


def other_value(value: Any) -> Any:
    """Return another value of the same form, so that the record is still readable where that is possible."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if re.fullmatch(r"-?\d+\.\d{6}", value):
            return f"{float(value) + 0.000001:.6f}"
        case str() if re.match(r"\d{4}-\d\d-\d\dT", value):
            return value.replace("20", "21", 1)
        case str():
            return value + "x"
        case None:
            return 1
        case _:
            return [1] if isinstance(value, list) else {"x": 1}


def changed(content: Any, path: Leaf) -> bytes:
    whole = json.loads(json.dumps(content))
    at = whole
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = other_value(at[path[-1]])
    return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode()


def finding(store: FolderStore, run_id: str) -> str:
    """Return what `ledger verify` or `replay RUN` reports; empty: nothing."""
    try:
        verify(store, load_anchors(store))
        return changed_summary(store, run_id)
    except (LedgerCorrupt, DataError) as error:
        return str(error)


def test_every_value_of_every_record_is_compared_or_listed_as_not_compared(copied: FolderStore) -> None:
    (run,) = copied.root.glob("runs/*")
    assert finding(copied, run.name) == ""
    missed, kinds = [], set()
    for path in sorted(run.rglob("*.json")):
        name, data = path.relative_to(run).as_posix(), path.read_bytes()
        if name.startswith(not_found()):
            continue
        kinds.add(name.split("/")[0])
        content = json.loads(data)
        paths = list(leaves(content))
        if len(paths) > LEAVES_A_RECORD:
            paths = random.Random(name).sample(paths, LEAVES_A_RECORD)
        for leaf in paths:
            path.write_bytes(changed(content, leaf))
            if name.rpartition("/")[2].removesuffix(".json") not in finding(copied, run.name) and (
                name != "summary.json" or not finding(copied, run.name)
            ):
                missed.append((name, leaf))
        path.write_bytes(data)
    assert missed == []
    expected = {"run.json", "starts", "ends", "decisions", "receipts", "model.json", "curve.json"}
    assert kinds == expected | {"evaluation.json", "summary.json"}


@pytest.mark.parametrize(
    "pattern", ["receipts/train-1", "decisions/train-1", "starts/1", "ends/1", "run", "evaluation"]
)
def test_a_removed_record_is_found(store: FolderStore, pattern: str) -> None:
    (path,) = store.root.glob(f"runs/*/{pattern}.json")
    path.unlink()
    with pytest.raises(LedgerCorrupt, match=rf"{pattern}\.json, which (was removed later|is missing)"):
        verify(store, load_anchors(store))


def test_an_added_receipt_is_found(store: FolderStore) -> None:
    (path,) = store.root.glob("runs/*/receipts/train-1.json")
    content = json.loads(path.read_bytes()) | {"attempt": 2, "spent_usd": "0.000000"}
    path.with_name("train-2.json").write_text(json.dumps(content))
    with pytest.raises(LedgerCorrupt, match=r"ended the run without .*/train-2\.json, which was added later"):
        verify(store, load_anchors(store))


def test_a_copy_of_the_run_is_compared_as_well(finished: Finished, tmp_path: Path) -> None:
    """`run` writes the records of the run beside its part of the ledger."""
    out = shutil.copytree(finished.out, tmp_path / "out")
    verify(*open_ledger_folder(out))
    path = out / "receipts" / "train-1.json"
    path.write_text(path.read_text().replace('"cpu_s": ', '"cpu_s": 1'))
    with pytest.raises(LedgerCorrupt, match=rf"{CLOSED_BY} runs/[\w-]+/receipts/train-1\.json"):
        verify(*open_ledger_folder(out))


def test_a_ledger_without_the_records_beside_it_says_so(store: FolderStore) -> None:
    found = verify(store, load_anchors(store))
    assert found.not_compared == ()
    shutil.rmtree(store.root / "runs")
    (sentence,) = verify(store, load_anchors(store)).not_compared
    assert "no folder runs/" in sentence and sentence in verify(store, {}).as_text()


def test_a_run_that_an_earlier_version_closed_is_reported_as_not_compared(
    store: FolderStore, tmp_path: Path
) -> None:
    stored = Path(__file__).parents[1] / "stored" / "v4" / "store"
    earlier = FolderStore(shutil.copytree(stored, tmp_path / "v4"))
    (path,) = earlier.root.glob("runs/planes-*/receipts/train-1.json")
    path.write_text(path.read_text().replace('"cpu_s": ', '"cpu_s": 1'))
    (sentence,) = verify(earlier, load_anchors(earlier)).not_compared
    assert sentence.startswith("2 of 2 runs were closed by an earlier version")


def test_the_entry_that_closes_a_run_without_records_has_the_bytes_of_earlier_versions() -> None:
    stored = FolderStore(Path(__file__).parents[1] / "stored" / "v4" / "store")
    for account in (path.name for path in (stored.root / "ledger").iterdir()):
        for hashed in AccountChain(stored, account).entries:
            assert b"records" not in record_bytes(hashed)
