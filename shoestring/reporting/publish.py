"""Write a run's summary and report to the store, and copies for people to a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION, record_bytes
from shoestring.data.run_records import open_run, read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.spending.audit import export as ledger_export
from shoestring.spending.ledger.entry import read_entry
from shoestring.training.model_record import ModelRecord

EXPORTED_FOLDERS = ("decisions", "receipts", "migration-checks")
ADDED_FIELDS = {"deadline_at", "late_s", "engine_s", "engine_planned_s"}
"""Fields of a summary that version 0.3.0 did not write."""
EXPORTED_FILES = ("run.json", "summary.json", "report.html", "curve.json", "evaluation.json")


def publish(store: Store, run_id: str) -> str:
    """Write `summary.json` and `report.html` of the current state of a run; return the page."""
    story = read_run_story(store, run_id)
    html = page(story)
    store.put(store_layout.summary(run_id), record_bytes(summarise_run(story)))
    store.put(store_layout.report(run_id), html.encode())
    return html


def changed_summary(store: Store, run_id: str) -> str:
    """Return how the stored summary differs from what the run's records say; empty: it does not.

    Only the summary of a run that has ended is compared, and only if this version wrote the run's records.
    """
    try:
        stored = read_record(store, store_layout.summary(run_id), RunSummary)
    except NotInStore:
        return ""
    story = read_run_story(store, run_id)
    has_ended = all(each.account.closed for each in story.start_accounts)
    if not has_ended or story.record.schema_version != SCHEMA_VERSION:
        return ""
    found, expected = (each.model_dump(mode="json") for each in (stored, summarise_run(story)))
    # The month and the campaign go on, but their entries stay.
    for head in stored.ledger_heads:
        entry = read_entry(store, head.account, head.entries)
        if entry is not None and entry.sha256 == head.sha256:
            for summary in (found, expected):
                summary["ledger_heads"] = [
                    each for each in summary["ledger_heads"] if each["account"] != head.account
                ]
    unwritten = ADDED_FIELDS - stored.model_fields_set
    changed = [name for name in found if found[name] != expected[name] and name not in unwritten]
    return "; ".join(f"{name} is {found[name]}, and its records give {expected[name]}" for name in changed)


def export(store: Store, run_id: str, folder: Path) -> RunSummary:
    """Copy the files of a run into `folder`: report, decisions, receipts, model, and its part
    of the ledger.
    """
    prefix = store_layout.run(run_id)
    keys = [
        key
        for key in store.list(prefix)
        if key.removeprefix(prefix).split("/")[0] in (*EXPORTED_FOLDERS, *EXPORTED_FILES)
    ]
    for key in keys:
        target = folder / key.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(store.fetch(key), target)
    _copy_model(store, store_layout.model(run_id), folder / "model")
    accounts = [start.account for start in open_run(store, run_id).starts]
    if accounts:
        ledger_export.export_accounts(store, folder / "ledger", *accounts)
    return summarise_run(read_run_story(store, run_id))


def _copy_model(store: Store, key: str, folder: Path) -> None:
    """Copy the model's record and its weights, if a model was trained.

    `torch.load(..., weights_only=True)` reads the weights.
    """
    try:
        model = read_record(store, key, ModelRecord)
    except NotInStore:
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(store.fetch(key), folder / "model.json")
    shutil.copyfile(open_blob(store, model.weights_sha256), folder / "weights.pt")
