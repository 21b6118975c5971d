"""A run's books as a folder of their own, which verifies without the store that it came from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from shoestring.core.errors import LedgerCorrupt, NotInStore, StoreError, UnknownName, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import STANDARD_CLASS
from shoestring.spending.approvals import approval_key
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import HeadHint, entry_key, head_key

EXPORT_KEY = "ledger/export.json"


class LedgerExport(StoredRecord):
    """Marks a folder as an export, and says whose books it must hold: other accounts that are named in them may be missing."""

    accounts: tuple[str, ...]


class LedgerFolderStore:
    """A `ledger/` folder, under whatever name, and what lies beside it, as a store to read from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def _path(self, key: str) -> Path:
        top, _, rest = key.partition("/")
        return self._folder / rest if top == "ledger" else self._folder.parent / key

    def fetch(self, key: str) -> Path:
        path = self._path(key)
        if not path.is_file():
            raise NotInStore(key)
        return path

    def put(self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS) -> bool:
        raise StoreError(f"cannot write {key}: {self._folder} was opened to be read")

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
    """Write the chains of `accounts`, and of the accounts above them, into `folder`, in place of an export that is there.

    Raises:
        UnknownName: no such account.
        UsageError: the folder holds something else, which would be lost.
        LedgerCorrupt: a chain that does not hold is not copied.
    """
    chains = _lineage(store, accounts)
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / "export.json").is_file():
            raise UsageError(
                f"{folder} holds something that is not an export of a ledger: choose another folder"
            )
        shutil.rmtree(folder)
    _write(folder, EXPORT_KEY, record_bytes(LedgerExport(accounts=tuple(sorted(accounts)))))
    for name, chain in chains.items():
        for sealed in chain.entries:
            _write(folder, entry_key(name, sealed.entry.number), record_bytes(sealed))
            if sealed.entry.approval is not None:
                key = approval_key(name.partition(".")[0], sealed.entry.approval)
                _write(folder, key, store.fetch(key).read_bytes())
        _write(folder, head_key(name), record_bytes(HeadHint(number=chain.account.number, sha256=chain.account.head)))


def read_export(store: Store) -> LedgerExport | None:
    """Whose books this export holds; None for a whole ledger. Raises LedgerCorrupt."""
    try:
        data = store.fetch(EXPORT_KEY).read_bytes()
        part = LedgerExport.model_validate_json(data)
    except NotInStore:
        return None
    except ValidationError:
        part = None
    if part is None or record_bytes(part) != data:
        raise LedgerCorrupt("export.json", 0, "was changed: export the run again")
    return part


def _lineage(store: Store, accounts: tuple[str, ...]) -> dict[str, AccountChain]:
    """The chains of `accounts` and of all above them, each after those inside it, so that all entries they name are in the copy."""
    chains: dict[str, AccountChain] = {}
    waiting = list(accounts)
    while waiting:
        name = waiting.pop(0)
        chain = chains[name] = AccountChain(store, name)
        if not chain.account.number:
            raise UnknownName("account", name, sorted(set(accounts) - {name}))
        for parent in chain.account.parents:
            chains.pop(parent, None)
            waiting.append(parent)
    for chain in reversed(chains.values()):
        for sealed in chain.entries:
            # A parent that was read later may know of an end that the child had not come to yet.
            if sealed.entry.child_hash and sealed.entry.child in chains:
                chains[sealed.entry.child].find(sealed.entry.child_hash)
    return chains


def _write(folder: Path, key: str, data: bytes) -> None:
    path = folder / key.removeprefix("ledger/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
