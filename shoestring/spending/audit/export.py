"""Exports accounts to a folder of their own, which can be verified without the store that they came from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, NotInStore, StoreError, UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import STANDARD_CLASS
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import HeadHint


class LedgerExport(StoredRecord):
    """Marks a folder as an export, and names the accounts it must hold. Other accounts that they name may be
    missing.
    """

    accounts: tuple[str, ...]


class LedgerFolderStore:
    """A read-only store over a `ledger/` folder of any name, and the folders next to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def _path(self, key: str) -> Path:
        top, _, rest = key.partition("/")
        return self._folder / rest if f"{top}/" == store_layout.LEDGER else self._folder.parent / key

    def fetch(self, key: str) -> Path:
        path = self._path(key)
        if key.startswith(store_layout.RUNS) and (self._folder / "export.json").is_file():
            # The records of an exported run lie beside its ledger.
            path = self._folder.parent.joinpath(*key.split("/")[2:])
        if not path.is_file():
            raise NotInStore(key)
        return path

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        raise StoreError(f"cannot write {key}: {self._folder} is open for reading only")

    def list(self, prefix: str) -> Iterator[str]:
        top = prefix.partition("/")[0]
        root = self._path(f"{top}/")
        found = (
            path.relative_to(root).as_posix()
            for path in root.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )
        yield from sorted(key for key in (f"{top}/{rest}" for rest in found) if key.startswith(prefix))


def export_accounts(store: Store, folder: Path, *accounts: str) -> None:
    """Write the chains of `accounts` and of their parents into `folder`, replacing an earlier export.

    Raises:
        UnknownName: there is no such account.
        UsageError: the folder holds other files, which would be lost.
        LedgerCorrupt: a chain is damaged. It is not copied.
    """
    chains = _with_parents(store, accounts)
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / "export.json").is_file():
            raise UsageError(f"{folder} holds files that are not a ledger export: choose another folder")
        shutil.rmtree(folder)
    _write(folder, store_layout.LEDGER_EXPORT, record_bytes(LedgerExport(accounts=tuple(sorted(accounts)))))
    for name, chain in chains.items():
        for hashed in chain.entries:
            _write(folder, store_layout.ledger_entry(name, hashed.entry.number), record_bytes(hashed))
            if hashed.entry.approval is not None:
                key = store_layout.approvals(name.partition(".")[0], hashed.entry.approval)
                _write(folder, key, store.fetch(key).read_bytes())
        head = HeadHint(number=chain.account.number, sha256=chain.account.head)
        _write(folder, store_layout.ledger_head(name), record_bytes(head))


def read_export(store: Store) -> LedgerExport | None:
    """Return the marker of an export, or None for a whole ledger. Raises LedgerCorrupt."""
    try:
        data = store.fetch(store_layout.LEDGER_EXPORT).read_bytes()
        export = LedgerExport.model_validate_json(data)
    except NotInStore:
        return None
    except ValidationError:
        export = None
    if export is None or record_bytes(export) != data:
        raise LedgerCorrupt("export.json", 0, "was changed: export the run again")
    return export


def _with_parents(store: Store, accounts: tuple[str, ...]) -> dict[str, AccountChain]:
    """Return the chains of `accounts` and of all their parents, each after its children.

    A parent is read after its children, so that the copy contains every entry that the children name.
    """
    chains: dict[str, AccountChain] = {}
    names = list(accounts)
    while names:
        name = names.pop(0)
        chain = chains[name] = AccountChain(store, name)
        if not chain.account.number:
            raise UnknownName("account", name, sorted(set(accounts) - {name}))
        for parent in chain.account.parents:
            chains.pop(parent, None)
            names.append(parent)
    for chain in reversed(chains.values()):
        for hashed in chain.entries:
            # A parent that was read later may name an entry that closed the child after it was read.
            if hashed.entry.child_hash and hashed.entry.child in chains:
                chains[hashed.entry.child].find(hashed.entry.child_hash)
    return chains


def _write(folder: Path, key: str, data: bytes) -> None:
    path = folder / key.removeprefix(store_layout.LEDGER)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
