"""Reads the prices of a world file and the price lists that it names, in CSV or YAML, as price rows.

A row that cannot be read is rejected with its line number. A file that cannot be read is an error. Columns
are known by name, in any order:

Shoestring   provider, region, zone, machine, gpu, gpu_count, cores, memory_gb, market,
             usd_per_hour (or per_hour, currency), as_of, source
SkyPilot     InstanceType, AcceleratorName, AcceleratorCount, vCPUs, MemoryGiB, Price, SpotPrice, Region,
             AvailabilityZone, ...
gpuhunt      instance_name, location, price, cpu, memory, gpu_count, gpu_name, gpu_memory, spot, ...
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any

from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.core.record import SCHEMA_VERSION, Record, SchemaVersion, record_bytes
from shoestring.core.types import Market, RejectedPrice
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile, PriceList
from shoestring.pricing.rows import ExchangeRate, PriceRow, RowError, parse_row, parse_rows

RawRow = Mapping[str, Any]
RawRows = Iterator[dict[str, Any]]
CatalogueRows = tuple[list[PriceRow], list[RejectedPrice]]
FileVersions = tuple[tuple[int, int, int], ...]
"""Modification time in ns, size in bytes and inode of each file."""

# The columns that a table must have to be of a format.
SKYPILOT_COLUMNS = {"InstanceType", "Price", "Region"}
GPUHUNT_COLUMNS = {"instance_name", "location", "price"}
SHOESTRING_COLUMNS = {"machine", "market"}

GPUHUNT_MARKETS = dict.fromkeys(("true", "1", "yes"), "spot") | dict.fromkeys(
    ("false", "0", "no", ""), "on-demand"
)
"""What gpuhunt's column `spot` says of a row's market."""


class YamlPriceList(Record):
    """A price list in YAML."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    prices: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A price list that was read from a file. `text` is its content, for a digest."""

    file: CatalogueFile
    text: str
    _rows_of: dict[frozenset[str], CatalogueRows] = field(default_factory=dict, compare=False, repr=False)

    def read(
        self, rates: Mapping[str, ExchangeRate], is_wanted: Callable[[str], bool] | None = None
    ) -> CatalogueRows:
        """Return the rows of the list, and those that cannot be read.

        `is_wanted` takes a machine's name and returns whether its rows are read. None reads all rows.

        Raises:
            WorldError: the file is not a price list, or neither its rows nor the world file give a date.
        """
        rows, rejected = [], []
        for number, raw in self._raw_rows():
            if is_wanted and not is_wanted(str(raw.get("machine") or "")):
                continue
            try:
                rows.append(parse_row(self._with_defaults(raw), rates))
            except RowError as error:
                fields = ("provider", "region", "machine", "market")
                name = " ".join(" ".join(str(raw.get(field) or "") for field in fields).split())
                row = f"{self.file.file}, row {number}: {name or 'empty'}"
                rejected.append(RejectedPrice(row=row, reason=str(error)))
        return rows, rejected

    def rows_of(self, machines: frozenset[str], rates: Mapping[str, ExchangeRate]) -> CatalogueRows:
        """Return the rows of machines, whose names are in lower case. The list is read once for them, since a
        running stage asks every second: all calls give the same `rates`. Raises WorldError.
        """
        if machines not in self._rows_of:
            self._rows_of[machines] = self.read(rates, lambda machine: machine.lower() in machines)
        return self._rows_of[machines]

    def validated(self) -> Catalogue:
        """Return the catalogue itself. Raises WorldError if it is not a price list."""
        self.read({}, lambda _: False)
        return self

    def _with_defaults(self, raw: RawRow) -> dict[str, Any]:
        """Return the row, with the fields that the world file gives for all rows of the list."""
        defaults = {
            "provider": self.file.provider,
            "as_of": self.file.as_of,
            "source": self.file.source or self.file.file,
        }
        return {**raw, **{field: value for field, value in defaults.items() if value and not raw.get(field)}}

    def _raw_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.file.file.lower().endswith((".yaml", ".yml")):
            listed = parse(self.text, YamlPriceList, self.file.file, WorldError).prices
            yield from enumerate(map(dict, listed), 1)
            return
        table = csv.DictReader(StringIO(self.text.lstrip("\ufeff")), restkey="more", restval="")
        try:
            columns = list(table.fieldnames or ())
            if doubled := sorted({name for name in columns if columns.count(name) > 1}):
                raise WorldError(f"{self.file.file} names a column twice: {', '.join(doubled)}; keep one")
            read_line = self._table_format(set(columns))
            for line in table:
                for raw in read_line(line):
                    yield table.line_num, raw
        except csv.Error as error:
            raise WorldError(f"{self.file.file} is not CSV: line {table.line_num}: {error}") from None

    def _table_format(self, columns: set[str]) -> Callable[[RawRow], RawRows]:
        """Return the function that reads lines of a table with these columns. Raises WorldError."""
        name = self.file.file
        read_line = next((function for needed, function in TABLE_FORMATS if needed <= columns), None)
        if read_line is None:
            if any(";" in column for column in columns):
                raise WorldError(
                    f"{name} has semicolons between columns: export it with commas, and decimal points"
                )
            known = "; or ".join(", ".join(sorted(needed)) for needed, _ in reversed(TABLE_FORMATS))
            raise WorldError(f"{name} is not a price list: its first line must name the columns {known}")
        if read_line is not _shoestring_rows and not self.file.as_of:
            raise WorldError(
                f"{name} has no dates: write {{file: {name}, as_of: 2026-07-30}} in `catalogues`"
            )
        return read_line


def _shoestring_rows(line: RawRow) -> RawRows:
    yield {field: value for field, value in line.items() if value not in (None, "")}


def _skypilot_rows(line: RawRow) -> RawRows:
    """Yield an on-demand row, and a spot row unless SpotPrice is empty, which means that spot is not sold."""
    common = {
        "machine": line["InstanceType"],
        "region": line["Region"],
        "zone": line.get("AvailabilityZone"),
        "gpu": line.get("AcceleratorName"),
        "gpu_count": line.get("AcceleratorCount") or "0",
        "cores": line.get("vCPUs"),
        "memory_gb": line.get("MemoryGiB"),
    }
    yield common | {"market": Market.ON_DEMAND.value, "usd_per_hour": line["Price"]}
    if line.get("SpotPrice"):
        yield common | {"market": Market.SPOT.value, "usd_per_hour": line["SpotPrice"]}


def _gpuhunt_rows(line: RawRow) -> RawRows:
    spot = str(line.get("spot") or "").strip().lower()
    yield {
        "provider": line.get("provider"),
        "machine": line["instance_name"],
        "region": line["location"],
        "gpu": line.get("gpu_name"),
        "gpu_count": line.get("gpu_count") or "0",
        "cores": line.get("cpu"),
        "memory_gb": line.get("memory"),
        "market": GPUHUNT_MARKETS.get(spot, spot),
        "usd_per_hour": line["price"],
    }


TABLE_FORMATS = (
    (SKYPILOT_COLUMNS, _skypilot_rows),
    (GPUHUNT_COLUMNS, _gpuhunt_rows),
    (SHOESTRING_COLUMNS, _shoestring_rows),
)


def default_catalogue() -> Catalogue:
    """Return the price list of the package: dated prices, each with its source."""
    text = resources.files("shoestring.pricing").joinpath("default.csv").read_text(encoding="utf-8")
    return Catalogue(CatalogueFile(file=DEFAULT_CATALOGUE), text)


def open_catalogue(file: CatalogueFile, folder: Path) -> Catalogue:
    """Return a price list that a world file in `folder` names. Raises WorldError if it is missing or not
    text.
    """
    if file.file == DEFAULT_CATALOGUE:
        return default_catalogue()
    path = folder / file.file
    missing = (
        f"there is no price list at {path}: fix `catalogues`, "
        f"or write `{DEFAULT_CATALOGUE}` for the list of the package"
    )
    return Catalogue(file, read_text(path, missing, WorldError))


def file_versions(source: Path, price_list: PriceList) -> FileVersions:
    """Return the versions of a file and of the price lists that it names relative to its folder."""
    named = (source.parent / each.file for each in price_list.catalogues if each.file != DEFAULT_CATALOGUE)
    return tuple(map(_file_version, (source, *named)))


def _file_version(file: Path) -> tuple[int, int, int]:
    """Return what of a file changes with its content; zeros if it is missing."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class PriceListing:
    """The prices of a world file, with the catalogues that it names: parsed, and not validated yet."""

    rows: tuple[PriceRow, ...]
    price_list: PriceList
    catalogues: tuple[Catalogue, ...] = ()

    @property
    def bytes(self) -> bytes:
        """The whole content, for a digest."""
        texts = (catalogue.text.encode() for catalogue in self.catalogues)
        return record_bytes(self.price_list) + b"".join(texts)


def read_listing(file: PriceList, open_file: Callable[[CatalogueFile], Catalogue]) -> PriceListing:
    """Return the prices of a file, and its catalogues from `open_file`.

    Raises:
        WorldError: a row is malformed, or a catalogue cannot be read.
    """
    # `file` may be a world file, which has more fields than these.
    price_list = PriceList.model_validate({name: getattr(file, name) for name in PriceList.model_fields})
    rows = parse_rows(file.prices, file.rates)
    return PriceListing(rows, price_list, tuple(open_file(catalogue) for catalogue in file.catalogues))


class ListingFile:
    """A file of prices and the price lists that it names, read again when one of them changes."""

    def __init__(
        self, listing: PriceListing, source: Path | None, read: Callable[[Path], PriceListing]
    ) -> None:
        """`listing` was read before. `read` raises WorldError where a file cannot be read. `source` None: it
        never changes.
        """
        self.newest, self._source, self._read = listing, source, read
        self._readable: PriceListing | None = listing
        # The first look reads: the files may have changed since, or a good copy replaced what they hold.
        self._versions: FileVersions | None = None

    def look(self) -> PriceListing | None:
        """Return the current prices; None while the files cannot be read. `newest` keeps the last ones."""
        if self._source is None:
            return self.newest
        versions = file_versions(self._source, self.newest.price_list)
        if versions != self._versions:
            self._versions, self._readable = versions, None
            with suppress(WorldError):
                self.newest = self._readable = self._read(self._source)
        return self._readable
