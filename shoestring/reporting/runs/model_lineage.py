"""A model, and all that it was made from: its training, its data sets, and the source files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, Field, field_validator

from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import Record
from shoestring.data.run_records import open_run, read_record, read_records
from shoestring.data.source_files import SourceFile, SourceRecord, read_sources, recorded_files
from shoestring.data.storage.origins import dataset_chain, source_files
from shoestring.training.model_record import ModelRecord

MODEL_SUFFIX = "/model.json"


class DatasetVersion(Record):
    """A version of a data set."""

    key: str
    rows: int
    format: str
    size_bytes: int
    settings_sha256: str
    splits: dict[str, int] = Field({}, description="rows of each split; of raw data of each table")
    quarantined: dict[str, int] = Field({}, description="reason -> rows that were set aside")


class ModelLineage(Record):
    """A model, its training, its data sets from the one that it was trained on back to the ingested one, and
    the source files.
    """

    weights_sha256: str
    run_id: str = Field(description="the run that trained it")
    shared_by: tuple[str, ...] = Field((), description="other runs whose model it is: they found it cached")
    seed: int
    samples: int
    decision_key: str = Field("", description="of the attempt that completed the training; empty: not stored")
    datasets: tuple[DatasetVersion, ...]
    source_sha256: str = Field("", description="digest of the list of source files; empty: not known")
    ingested_at: AwareDatetime | None = Field(None, description="null: an earlier version ingested the data")
    files: tuple[SourceFile, ...] = Field((), description="in the order of their names")
    missing: str = Field("", description="what is not stored any longer, as a sentence; empty: nothing")

    @field_validator("files", mode="before")
    @classmethod
    def _of_earlier_versions(cls, files: Any) -> Any:
        """Earlier versions wrote TABLE/FILE -> SHA-256 into the folder of a model."""
        if not isinstance(files, Mapping):
            return files
        return tuple(SourceFile(name=name, sha256=sha256) for name, sha256 in files.items())


def trace_model(store: Store, model: str) -> ModelLineage:
    """Return the lineage of the model of a run, or of that with these weights (their digest, or the key of
    their blob).

    Raises UnknownName: no run has this id, or such a model; DataError: the run has no model yet.
    """
    record = find_model(store, model)
    trainers = [key for key in _model_keys(store) if _weights(store, key) == record.weights_sha256]
    shared_by = tuple(run for key in trainers if (run := key.split("/")[1]) != record.run_id)
    return lineage_of(store, record).model_copy(update={"shared_by": shared_by})


def lineage_of(store: Store, record: ModelRecord) -> ModelLineage:
    """Return the lineage of a model, without the other runs that share it."""
    datasets, files, missing, source = list[DatasetVersion](), tuple[SourceFile, ...](), "", ""
    recorded: SourceRecord | None = None
    try:
        for key, manifest in dataset_chain(store, record.dataset_key):
            datasets.append(
                DatasetVersion(
                    key=key,
                    rows=manifest.rows,
                    format=manifest.format,
                    size_bytes=manifest.size_bytes,
                    settings_sha256=manifest.settings_sha256,
                    splits={name: sum(part.rows for part in of) for name, of in manifest.splits.items()},
                    quarantined=manifest.quarantined,
                )
            )
            source = manifest.parents[0] if manifest.parents else ""
        if source:
            recorded = read_sources(store, datasets[-1].key)
            files = recorded_files(recorded, source_files(store, source))
    except (NotInStore, CorruptObject) as error:
        missing = f"{error}: " + (
            "the version of Shoestring that ingested the data stored no list of its files"
            if source and not source.startswith(store_layout.DATASETS)
            else "`shoestring gc` deleted it, or it is damaged"
        )
    return ModelLineage(
        weights_sha256=record.weights_sha256,
        run_id=record.run_id,
        seed=record.seed,
        samples=record.samples,
        decision_key=_decision_of(store, record.run_id),
        datasets=tuple(datasets),
        source_sha256="" if source.startswith(store_layout.DATASETS) else source,
        ingested_at=recorded.ingested_at if recorded else None,
        files=files,
        missing=missing,
    )


def find_model(store: Store, model: str) -> ModelRecord:
    """Return the record of a model. Raises UnknownName, DataError."""
    weights = model.removeprefix(store_layout.BLOBS)
    for key in _model_keys(store) if len(weights) == 64 else ():
        if _weights(store, key) == weights:
            return read_record(store, key, ModelRecord)
    run = open_run(store, model)
    try:
        return read_record(store, store_layout.model(run.run_id), ModelRecord)
    except NotInStore:
        raise DataError(f"{model} has no model yet: its training is not complete") from None


def _model_keys(store: Store) -> list[str]:
    return [key for key in store.list(store_layout.RUNS) if key.endswith(MODEL_SUFFIX)]


def _weights(store: Store, key: str) -> str:
    try:
        return read_record(store, key, ModelRecord).weights_sha256
    except (NotInStore, DataError):
        return ""


def _decision_of(store: Store, run_id: str) -> str:
    """Return the key of the decision of the attempt that completed the training of a run."""
    keys = list(store.list(store_layout.receipts(run_id, "train")))
    receipts, _ = read_records(store, keys, Receipt)
    done = [each for each in receipts if each.status == "done"]
    return done[-1].decision_key if done else ""
