"""The run that a command line names: by its own id, or by Kubeflow's id of it."""

from __future__ import annotations

from shoestring.cli.world_source import WorldSource
from shoestring.core import store_layout
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import Store
from shoestring.core.store_layout import is_key
from shoestring.data.run_records import RunRecord, read_records
from shoestring.runtime.records.run_setup import run_id_of_label

LATEST = "latest"


def named_run_id(store: Store, name: str) -> str:
    """Return the id of the run of this id, or else of the run that Kubeflow knows under it.

    A name of no run is returned as it is, for the command to report.
    """
    if "/" in name or not is_key(store_layout.job(name)) or any(store.list(store_layout.run_record(name))):
        return name
    return run_id_of_label(store, name)


def named_command_run(store: Store, name: str) -> str:
    """Return the same for a run of `shoestring exec`; `latest` names the newest one.

    Raises UsageError: there is none.
    """
    if name != LATEST or any(store.list(store_layout.run_record(name))):
        return named_run_id(store, name)
    run_ids = {key.split("/")[1] for key in store.list(store_layout.RUNS)}
    records, _ = read_records(store, [store_layout.run_record(each) for each in run_ids], RunRecord)
    # The command of a pipeline has no folder.
    found = [each for each in records if each.command is not None and each.command.folder]
    if not found:
        raise UsageError(
            "this store has no run of a command: begin one with `shoestring exec --budget USD -- COMMAND...`,"
            " or name its store (--world or --store)"
        )
    return max(found, key=lambda each: each.created_at).run_id


def named_run(source: WorldSource, name: str) -> tuple[Store, str]:
    """Return the store of a world, and the id of the run that `name` names there."""
    store = source.open().store
    return store, named_run_id(store, name)
