"""The lineage of a model as text."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.data.source_files import SourceFile
from shoestring.reporting.number_text import quantity, size, utc_time
from shoestring.reporting.runs.model_lineage import DatasetVersion
from shoestring.reporting.runs.traced_model import TracedModel

MAX_FILES = 20
"""Source files that are shown; the JSON has all."""


def lineage_text(found: TracedModel) -> str:
    """Return a line or two for each link, from the model to its files."""
    return "\n".join(
        f"{name:<11} {line}".rstrip()
        for name, lines in _links(found)
        for name, line in zip([name, *[""] * len(lines)], lines, strict=False)
    )


def _links(found: TracedModel) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each link with its lines."""
    folder = [f"{found.folder}: all files match their digests"] if found.folder else []
    trained = f"trained by {found.run_id}, seed {found.seed}, {quantity(found.samples, 'sample')}"
    shared = (f"also the model of {run_id}" for run_id in found.shared_by)
    yield "model", [found.weights_sha256, *folder, trained, *shared]
    yield "decision", [found.decision_key or "is not stored"]
    yield "receipt", [found.receipt_key or "is not stored"]
    yield "code", [found.code_sha256 or "is not stored", *_versions(found)]
    for each in found.datasets:
        yield "data set", [each.key, *_contents(each)]
    if found.missing:
        yield "missing", [found.missing]
    if found.files:
        ingested = f", ingested {utc_time(found.ingested_at)}" if found.ingested_at else ""
        yield "files", [f"{quantity(sum(each.files for each in found.files), 'source file')}{ingested}"]
    for file in found.files[:MAX_FILES]:
        yield "file", [f"{file.name}  {file.sha256}", *_details(file)]
    if (more := len(found.files) - MAX_FILES) > 0:
        yield "", [f"and {more:,} more; --json lists all"]
    yield "checked", [*_checked(found)]


def _versions(found: TracedModel) -> Iterator[str]:
    if found.image:
        yield found.image
    if versions := found.environment | found.libraries:
        yield ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _contents(dataset: DatasetVersion) -> Iterator[str]:
    splits = ", ".join(f"{rows:,} {name}" for name, rows in dataset.splits.items())
    of = f" ({splits})" if splits else ""
    yield f"{quantity(dataset.rows, 'row')}{of}, {dataset.format}, {size(dataset.size_bytes)}"
    if dataset.quarantined:
        reasons = (f"{rows:,} {reason}" for reason, rows in dataset.quarantined.items())
        yield f"quarantined: {'; '.join(reasons)}"


def _details(file: SourceFile) -> Iterator[str]:
    parts = [file.place] if file.place else []
    if file.files > 1:
        parts.append(quantity(file.files, "file"))
    if file.size_bytes is not None:
        parts.append(size(file.size_bytes))
    if file.is_remote and file.version:
        parts.append(f"version {file.version}")
    if file.read_at is not None:
        parts.append(f"read {utc_time(file.read_at)}")
    if parts:
        yield ", ".join(parts)


def _checked(found: TracedModel) -> Iterator[str]:
    if not found.checked_objects:
        yield "no object: the store has no such model"
        return
    wrong = "" if found.damaged else ": all that are stored match their digests"
    yield f"{quantity(found.checked_objects, 'stored object')}{wrong}"
    yield from (
        f"{each.key} differs: its bytes have the digest {each.found_sha256}" for each in found.damaged
    )
    yield from (f"{key} is not stored any longer: `shoestring gc` deleted it" for key in found.deleted)
