"""Write a run's summary and report to the store, and copies for people to a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.run_records import open_run, read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.spending.audit import export as ledger_export
from shoestring.training.model_record import ModelRecord

EXPORTED_FOLDERS = ("decisions", "receipts", "migration-checks")
EXPORTED_FILES = ("run.json", "summary.json", "report.html", "curve.json", "evaluation.json")


def publish(store: Store, run_id: str) -> str:
    """Write `summary.json` and `report.html` of the current state of a run; return the page."""
    story = read_run_story(store, run_id)
    html = page(story)
    store.put(store_layout.summary(run_id), record_bytes(summarise_run(story)))
    store.put(store_layout.report(run_id), html.encode())
    return html


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
