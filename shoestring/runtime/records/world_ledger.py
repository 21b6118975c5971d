"""The ledger of a world's store. All ledgers of one process share what they have read of it."""

from __future__ import annotations

import weakref
from threading import Lock

from shoestring.config.world import World
from shoestring.core.interfaces import Store
from shoestring.spending.ledger.account import KnownAccounts
from shoestring.spending.ledger.ledger import Ledger

_known: dict[int, tuple[weakref.ref[Store], KnownAccounts]] = {}
_lock = Lock()


def world_ledger(world: World) -> Ledger:
    """Return a ledger for the calling thread."""
    return Ledger(world.store, world.clock, str(world.pod), known=_known_accounts(world.store))


def _known_accounts(store: Store) -> KnownAccounts:
    with _lock:
        found = _known.get(id(store))
        # Another store may have the id of one that is gone.
        if found is None or found[0]() is not store:
            found = weakref.ref(store), KnownAccounts()
            _known[id(store)] = found
        return found[1]


def forget_accounts(world: World) -> None:
    """Let later ledgers of this process read all accounts again: one that runs for days sees what was changed
    in entries that it has read.
    """
    with _lock:
        _known.pop(id(world.store), None)
