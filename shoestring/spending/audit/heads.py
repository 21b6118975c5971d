"""The heads of the ledger's chains: one line an account, to keep where the ledger's writers cannot write.

A ledger whose records agree with each other may still be an older copy of itself, or may have been written
again from its first entry. Only a list of heads that is kept elsewhere shows that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from shoestring.core.errors import LedgerCorrupt, UsageError
from shoestring.core.interfaces import Clock, Store
from shoestring.core.record import Record
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import ACCOUNT_PATTERN, AccountName, Sha256

HEAD_LINE = re.compile(rf"({ACCOUNT_PATTERN.strip('^$')}) (\d+) ([0-9a-f]{{64}})")


class LedgerHead(Record):
    """The number of entries of an account, and the hash of the last one."""

    account: AccountName
    entries: int = Field(ge=1)
    sha256: Sha256

    def as_line(self) -> str:
        return f"{self.account} {self.entries} {self.sha256}"


HEADS = TypeAdapter(tuple[LedgerHead, ...])


def ledger_heads(store: Store, clock: Clock, accounts: Iterable[str]) -> tuple[LedgerHead, ...]:
    """Return the heads of these accounts; those that were never opened are left out. Raises LedgerCorrupt."""
    chains = ChainWriter(store, clock)
    found = (chains.latest(name) for name in accounts)
    return tuple(
        LedgerHead(account=each.name, entries=each.number, sha256=each.head) for each in found if each.number
    )


def read_heads(path: Path) -> tuple[LedgerHead, ...]:
    """Read a list of heads: the lines of `shoestring ledger heads`, or a run's summary.json.

    Raises:
        UsageError: the file is neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the heads of {path}: {error}") from error
    try:
        if text.lstrip().startswith("{"):
            return _Heads.model_validate_json(text).ledger_heads
        lines = [line for line in text.splitlines() if line.strip()]
        heads = tuple(_parse(line) for line in lines)
    except ValueError as error:
        reason = "it is no summary with heads" if isinstance(error, ValidationError) else str(error)
        raise UsageError(
            f"{path} is no list of heads ({reason}): give the output of `shoestring ledger heads`, "
            "or the summary.json of an exit step"
        ) from None
    if not heads:
        raise UsageError(f"{path} names no account: `shoestring ledger heads` prints one line for each")
    return heads


class _Heads(Record):
    """The field of a summary that is read here."""

    model_config = ConfigDict(extra="ignore")

    ledger_heads: tuple[LedgerHead, ...] = Field(min_length=1)


def _parse(line: str) -> LedgerHead:
    match = HEAD_LINE.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"line {line.strip()[:60]!r}")
    return LedgerHead(account=match[1], entries=int(match[2]), sha256=match[3])


def check_heads(heads: Iterable[LedgerHead], chains: Mapping[str, AccountChain], *, is_export: bool) -> None:
    """Check that each chain still has the entry that was its last when the list of heads was made.

    An export need not hold every account of the list.

    Raises:
        LedgerCorrupt: a chain is shorter than it was, or is another one.
    """
    for head in heads:
        chain = chains.get(head.account)
        if chain is None and is_export:
            continue
        number = chain.account.number if chain else 0
        if chain is None or number < head.entries:
            raise LedgerCorrupt(
                head.account,
                head.entries,
                f"is missing: the chain has {number} entries, and the list of heads names {head.entries}; "
                "the chain's end was removed, or an older copy of the store was put back",
            )
        if chain.entries[head.entries - 1].sha256 != head.sha256:
            raise LedgerCorrupt(
                head.account,
                head.entries,
                f"is not the entry {head.sha256[:12]}... that the list of heads names: the chain was written "
                "again",
            )
