"""Price lists by others: CSV or YAML text as rows. A row that cannot be read is set aside with its line; a file that cannot, refused.

Columns are known by their names, never by their place:

ours         provider, region, zone, machine, gpu, gpu_count, cores, memory_gb, market, usd_per_hour (or per_hour, currency), as_of, source
SkyPilot's   InstanceType, AcceleratorName, AcceleratorCount, vCPUs, MemoryGiB, Price, SpotPrice, Region, AvailabilityZone, ...
gpuhunt's    instance_name, location, price, cpu, memory, gpu_count, gpu_name, gpu_memory, spot, ...
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any

from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import WorldError
from shoestring.core.record import SCHEMA_VERSION, Record
from shoestring.core.types import Market, RejectedPrice
from shoestring.pricing.price_list import DEFAULT_CATALOGUE, CatalogueFile
from shoestring.pricing.rows import ExchangeRate, PriceRow, RowError, parse_row

RawRow = Mapping[str, Any]
RawRows = Iterator[dict[str, Any]]

# Without these a table is not of the kind.
SKYPILOT_COLUMNS = {"InstanceType", "Price", "Region"}
GPUHUNT_COLUMNS = {"instance_name", "location", "price"}
SHOESTRING_COLUMNS = {"machine", "market"}


class YamlPriceList(Record):
    """A price list in YAML."""

    schema_version: int = SCHEMA_VERSION
    prices: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A price list as it was read. `text` is what a digest is made of."""

    file: CatalogueFile
    text: str

    def read(
        self, rates: Mapping[str, ExchangeRate], wanted: Callable[[str], bool] | None = None
    ) -> tuple[list[PriceRow], list[RejectedPrice]]:
        """Its rows, and those that cannot be read. `wanted`: of a machine's name, whether its rows are looked at; None: all.

        Raises:
            WorldError: it is not a price list, or its rows have no date and the world file gives none.
        """
        rows, bad = [], []
        for number, raw in self._raws():
            if wanted and not wanted(str(raw.get("machine") or "")):
                continue
            try:
                rows.append(parse_row(self._told(raw), rates))
            except RowError as why:
                name = " ".join(
                    str(raw.get(field) or "") for field in ("provider", "region", "machine", "market")
                ).split()
                bad.append(
                    RejectedPrice(
                        row=f"{self.file.file}, row {number}: {' '.join(name) or 'nothing'}", reason=str(why)
                    )
                )
        return rows, bad

    def checked(self) -> Catalogue:
        """Itself. Raises WorldError: it is not a price list."""
        self.read({}, lambda _: False)
        return self

    def _told(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A row with what the world file says of all of them."""
        said = {
            "provider": self.file.provider,
            "as_of": self.file.as_of,
            "source": self.file.source or self.file.file,
        }
        return {**raw, **{field: value for field, value in said.items() if value and not raw.get(field)}}

    def _raws(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.file.file.lower().endswith((".yaml", ".yml")):
            yield from enumerate(
                map(dict, parse(self.text, YamlPriceList, self.file.file, WorldError).prices), 1
            )
            return
        table = csv.DictReader(StringIO(self.text.lstrip("\ufeff")), restkey="more", restval="")
        try:
            columns = set(table.fieldnames or ())
            shape = next((shape for needed, shape in TABLE_FORMATS if needed <= columns), None)
            if shape is None:
                known = "; or ".join(", ".join(sorted(needed)) for needed, _ in reversed(TABLE_FORMATS))
                raise WorldError(
                    f"{self.file.file} is not a price list: its first line has to name the columns {known}"
                )
            if shape is not _shoestring_rows and not self.file.as_of:
                raise WorldError(
                    f"{self.file.file} has no dates: write {{file: {self.file.file}, as_of: 2026-07-30}} in `catalogues`"
                )
            for line in table:
                for raw in shape(line):
                    yield table.line_num, raw
        except csv.Error as error:
            raise WorldError(f"{self.file.file} is not CSV: line {table.line_num}: {error}") from None


def _shoestring_rows(line: RawRow) -> RawRows:
    yield {field: value for field, value in line.items() if value not in (None, "")}


def _skypilot_rows(line: RawRow) -> RawRows:
    """A line is two rows: an empty SpotPrice is a machine that is not sold so, an empty Price says nothing."""
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
        "market": {"true": "spot", "false": "on-demand", "": "on-demand"}.get(spot, spot),
        "usd_per_hour": line["price"],
    }


TABLE_FORMATS = (
    (SKYPILOT_COLUMNS, _skypilot_rows),
    (GPUHUNT_COLUMNS, _gpuhunt_rows),
    (SHOESTRING_COLUMNS, _shoestring_rows),
)


def default_catalogue() -> Catalogue:
    """The list that comes with the package: dated facts, a source for each."""
    text = resources.files("shoestring.pricing").joinpath("default.csv").read_text(encoding="utf-8")
    return Catalogue(CatalogueFile(file=DEFAULT_CATALOGUE), text)


def open_catalogue(file: CatalogueFile, folder: Path) -> Catalogue:
    """The list that a world file in this folder names. Raises WorldError: it is not there, or is no text."""
    if file.file == DEFAULT_CATALOGUE:
        return default_catalogue()
    path = folder / file.file
    missing = f"there is no price list at {path}: mend `catalogues`, or write `{DEFAULT_CATALOGUE}` for the one that comes with the package"
    return Catalogue(file, read_text(path, missing, WorldError))
