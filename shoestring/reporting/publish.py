"""Put a run's summary and report into the store, and copies for people into a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.run_records import open_run, read_record
from shoestring.data.storage.blobs import open_blob
from shoestring.reporting.html.page import page
from shoestring.reporting.run_story import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.spending.audit import export as ledger_export
from shoestring.training.model_record import ModelRecord

FOLDERS = ("decisions", "receipts", "looks")
FILES = ("run.json", "summary.json", "report.html", "curve.json", "evaluation.json")


def publish(store: Store, run_id: str) -> str:
    """Write `summary.json` and `report.html` of a run as it is now; returns the page."""
    story = read_run_story(store, run_id)
    html = page(story)
    store.put(f"runs/{run_id}/summary.json", record_bytes(summarise_run(story)))
    store.put(f"runs/{run_id}/report.html", html.encode())
    return html


def export(store: Store, run_id: str, folder: Path) -> RunSummary:
    """Copy what a person wants of a run into `folder`: the report, decisions, receipts, the model, a ledger that verifies alone."""
    mine = f"runs/{run_id}/"
    keys = [key for key in store.list(mine) if key.removeprefix(mine).split("/")[0] in (*FOLDERS, *FILES)]
    for key in keys:
        target = folder / key.removeprefix(mine)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(store.fetch(key), target)
    _copy_model(store, f"{mine}model.json", folder / "model")
    accounts = [start.account for start in open_run(store, run_id).starts]
    if accounts:
        ledger_export.export_accounts(store, folder / "ledger", *accounts)
    return summarise_run(read_run_story(store, run_id))


def _copy_model(store: Store, key: str, folder: Path) -> None:
    """The model's record, and its weights as `torch.load(..., weights_only=True)` reads them; nothing when none was trained."""
    try:
        model = read_record(store, key, ModelRecord)
    except NotInStore:
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(store.fetch(key), folder / "model.json")
    shutil.copyfile(open_blob(store, model.weights_sha256), folder / "weights.pt")
