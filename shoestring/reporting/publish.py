"""Write a run's summary and report to the store, and copies for people to a folder."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, DataError, NotInStore, UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import SCHEMA_VERSION, Record, record_bytes, validation_message
from shoestring.data.run_records import open_run, read_record, read_run_record
from shoestring.data.scratch.temporary_folders import temporary_folder
from shoestring.data.storage.blobs import file_digest, open_blob
from shoestring.models.folder.read_folder import find_folder, read_folder
from shoestring.models.folder.record import LINEAGE_FILE
from shoestring.models.folder.write_folder import write_model
from shoestring.models.run_models import PREDICTIONS_FILE, PREDICTIONS_RECORD, RunPredictions
from shoestring.reporting.html.page import page
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.runs.model_lineage import ModelLineage, lineage_of
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.spending.audit import export as ledger_export
from shoestring.spending.ledger.entry import read_entry
from shoestring.training.model_record import ModelRecord

EXPORTED_FOLDERS = ("decisions", "receipts", "migration-checks")
ADDED_FIELDS = {"deadline_at", "late_s", "engine_s", "engine_planned_s", "not_taken", "may_be_done"}
"""Fields of a summary that version 0.3.0 did not write."""
EXPORTED_FILES = (
    "run.json",
    "summary.json",
    "report.html",
    "curve.json",
    "evaluation.json",
    PREDICTIONS_RECORD,
)


LOGGER = logging.getLogger("shoestring")
Used = TypeVar("Used")


class ExportedLineage(Record):
    """Where the model of a folder comes from: its data, and the digests of the decisions and receipts of the
    run that trained it, by key."""

    model: ModelLineage
    decisions: dict[str, str]
    receipts: dict[str, str]


def publish(store: Store, run_id: str) -> str:
    """Write `summary.json` and `report.html` of the current state of a run; return the page."""
    story = read_run_story(store, run_id)
    html = page(story)
    store.put(store_layout.summary(run_id), record_bytes(summarise_run(story)))
    store.put(store_layout.report(run_id), html.encode())
    return html


def changed_summary(store: Store, run_id: str) -> str:
    """Return how the stored summary differs from that of the run's records; empty: it does not.

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
    """Copy the files of a run into `folder`: report, decisions, receipts, model, predictions, and
    its part of the ledger.
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
    _export_model(store, run_id, folder / "model")
    _export_predictions(store, run_id, folder / PREDICTIONS_FILE)
    accounts = [start.account for start in open_run(store, run_id).starts]
    if accounts:
        ledger_export.export_accounts(store, folder / "ledger", *accounts)
    return summarise_run(read_run_story(store, run_id))


def _export_model(store: Store, run_id: str, folder: Path) -> None:
    """Write the folder of a run's model, if one was trained, and say why there is none where it cannot be."""
    try:
        write_run_model(store, run_id, folder)
    except UnknownName:
        return
    except (NotInStore, CorruptObject, DataError) as error:
        LOGGER.warning("%s is left out: %s", folder, error)


def _export_predictions(store: Store, run_id: str, path: Path) -> None:
    """Copy the predictions of a run, if it made any, and say so where they are not stored any longer."""
    key = store_layout.result_record(run_id, PREDICTIONS_RECORD)
    if not any(store.list(key)):
        return
    try:
        shutil.copyfile(open_blob(store, read_record(store, key, RunPredictions).sha256), path)
    except (NotInStore, CorruptObject, DataError) as error:
        LOGGER.warning("%s is left out: %s", path, error)


def write_run_model(store: Store, run_id: str, folder: Path) -> None:
    """Write the model of a run as a folder that predicts raw rows.

    Raises UnknownName: there is no such run, or it has no model yet; NotInStore: its data set is not stored
    any longer; DataError: an earlier version wrote it.
    """
    recipe = read_run_record(store, run_id).recipe
    try:
        model = read_record(store, store_layout.model(run_id), ModelRecord) if recipe else None
    except NotInStore:
        model = None
    if recipe is None or model is None:
        raise UnknownName("model of run", run_id, []) from None
    lineage = ExportedLineage(
        model=lineage_of(store, model),
        decisions=_digests(store, store_layout.decisions(model.run_id)),
        receipts=_digests(store, store_layout.receipts(model.run_id)),
    )
    write_model(store, model, recipe, record_bytes(lineage), folder)


def read_lineage(folder: Path) -> ModelLineage:
    """Return where the model of a folder comes from, as of when the folder was written. Raises UsageError,
    DataError: the folder is not whole."""
    path = read_folder(folder).path / LINEAGE_FILE
    try:
        return ExportedLineage.model_validate_json(path.read_bytes()).model
    except ValidationError as error:
        raise DataError(f"{path} is no lineage of a model: {validation_message(error)}") from None


def open_model(name: str, find_run: Callable[[str], tuple[Store, str]], use: Callable[[Path], Used]) -> Used:
    """Return what `use` makes of the folder of a model: a folder, that of a run's files, or that of a run,
    which is there until `use` returns. `find_run`: returns the store and the id of a run by its name.

    Raises UsageError: there is none of them; what `write_run_model` and `use` raise.
    """
    path = Path(name)
    if find_folder(path) is not None or path.exists():
        return use(path)
    if "/" in name or name.startswith("."):
        raise UsageError(f"there is no folder {name}: name the folder of a model, or a run")
    with temporary_folder() as folder:
        write_run_model(*find_run(name), folder / "model")
        return use(folder / "model")


def _digests(store: Store, prefix: str) -> dict[str, str]:
    return {key: file_digest(store.fetch(key)) for key in sorted(store.list(prefix))}
