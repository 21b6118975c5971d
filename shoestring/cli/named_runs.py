"""The run that a command line names: by its own id, or by Kubeflow's id of it."""

from __future__ import annotations

from shoestring.cli.world_source import WorldSource
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.store_layout import is_key
from shoestring.runtime.records.run_setup import run_id_of_label


def named_run_id(store: Store, name: str) -> str:
    """Return the id of the run of this id, or else of the run that Kubeflow knows under it.

    A name of no run is returned as it is, for the command to report.
    """
    if "/" in name or not is_key(store_layout.job(name)) or any(store.list(store_layout.run_record(name))):
        return name
    return run_id_of_label(store, name)


def named_run(source: WorldSource, name: str) -> tuple[Store, str]:
    """Return the store of a world, and the id of the run that `name` names there."""
    store = source.open().store
    return store, named_run_id(store, name)
