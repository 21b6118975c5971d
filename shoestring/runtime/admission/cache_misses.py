"""Which results of a recipe are cached, and which parts of a key missed where one is not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import CorruptObject, NotInStore
from shoestring.core.interfaces import Store, StoreInventory
from shoestring.core.record import Record
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.retention.references import read_all
from shoestring.data.storage.cache import MODULE_DIGITS, CacheEntry, read_entry, verify_outcome
from shoestring.data.storage.import_closure import ImportClosure
from shoestring.data.storage.origins import parse_contents, source_files, source_of
from shoestring.runtime.admission.result_keys import (
    KeyFields,
    StageInputs,
    StageWork,
    input_contents,
    known_libraries,
    listed_contents,
    pod_closure,
    shared_key,
    with_known_family,
)
from shoestring.runtime.admission.stage_request import next_inputs

KeyPart = Literal["source file", "input", "setting", "module", "library", "run"]

CachingStatus = Literal["cached", "missing", "unknown"]


class KeyChange(Record):
    """A part of a stage's key that differs from that of an earlier result. Empty: it is not in that key."""

    part: KeyPart
    name: str
    before: str
    after: str


class StageCaching(Record):
    """The state of the result of a stage, and the differences from the nearest earlier one."""

    stage: str
    status: CachingStatus
    reason: str = Field("", description="why the key is unknown, or its result cannot be used")
    entry: str = Field("", description="key of the cached result, or of the nearest earlier one; empty: none")
    written_at: AwareDatetime | None = Field(None, description="when that was last stored or used")
    changes: tuple[KeyChange, ...] = ()


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """A cached result of a stage."""

    key: str
    entry: CacheEntry
    written_at: datetime


@dataclass(frozen=True, slots=True)
class KnownKey:
    """The parts of a stage's key now. None: not known yet. `listed`: the source files of a first stage, as
    `list_contents` gives them.
    """

    closure: ImportClosure
    settings: JsonValue
    libraries: dict[str, str] | None
    contents: dict[str, str] | None
    listed: str = ""


def explain_caching(world: World, recipe: Recipe, needs: Iterable[Need], seed: int) -> list[StageCaching]:
    """Return for each stage, in order, whether a run of the recipe would find its result, and why not.

    After the first one that is missing, only those parts of a key are compared that no earlier stage makes.
    """
    earlier = list(earlier_results(world.store))
    found: list[StageCaching] = []
    inputs: StageInputs | None = StageInputs()
    for need in needs:
        image = world.images.get(need.image, need.image)
        work = StageWork(recipe, seed, "", need.stage, image, inputs or StageInputs())
        contents = input_contents(world, work) if inputs is not None else None
        of_stage = [each for each in earlier if each.entry.key_fields["stage"] == need.stage]
        caching, outcome = _explain_stage(world, work, contents, of_stage, inputs is not None)
        found.append(caching)
        inputs = next_inputs(inputs, outcome) if inputs is not None and outcome is not None else None
    return found


def earlier_results(store: Store) -> Iterator[EarlierResult]:
    """Yield all cached results that can be read."""
    assert isinstance(store, StoreInventory)
    objects = store.objects(store_layout.CACHE)
    keys = [key for key in objects if key.count("/") == 1]

    def read(key: str, data: bytes) -> EarlierResult | None:
        try:
            return EarlierResult(key, read_entry(key, data), objects[key].modified_at)
        except (CorruptObject, ValueError):
            return None

    yield from (each for each in read_all(store, keys, read) if each is not None)


def _explain_stage(
    world: World,
    work: StageWork,
    contents: dict[str, str] | None,
    earlier: list[EarlierResult],
    is_input_known: bool,
) -> tuple[StageCaching, StageOutcome | None]:
    work = with_known_family(world.store, work)
    closure = pod_closure(work)
    libraries = known_libraries(world, work.image, work.stage, closure.libraries)
    key, fields = shared_key(work, libraries or {}, contents or {})
    reason = ""
    if libraries is None:
        reason = f"the libraries of the image {work.image} are not recorded yet: its first stage records them"
    elif not is_input_known:
        reason = "it reads what an earlier stage has yet to make"
    elif contents is None:
        reason = "a file on a server is new, or has changed: its content is known once it is fetched"
    else:
        hit = next((each for each in earlier if PurePosixPath(each.key).stem == key), None)
        if hit is not None:
            damage = damage_of(world.store, hit.entry.outcome)
            found = _caching_of(work.stage, "missing" if damage else "cached", damage, hit)
            return found, None if damage else hit.entry.outcome
    listed = (listed_contents(world, work) or "") if is_input_known and not work.inputs.upstream else ""
    now = KnownKey(closure, fields["settings"], libraries, contents, listed)
    of_recipe = [each for each in earlier if _is_of_recipe(each.entry.key_fields, work)]
    compared = [(each, key_changes(world.store, each.entry, now)) for each in of_recipe]
    status: CachingStatus = "unknown" if reason else "missing"
    if not compared:
        reason = reason or f"no earlier result of {work.recipe.name} is stored"
        return _caching_of(work.stage, status, reason, None), None
    nearest, changes = min(compared, key=lambda pair: (len(pair[1]), -pair[0].written_at.timestamp()))
    return _caching_of(work.stage, status, reason, nearest, changes), None


def _caching_of(
    stage: str,
    status: CachingStatus,
    reason: str,
    earlier: EarlierResult | None,
    changes: Sequence[KeyChange] = (),
) -> StageCaching:
    return StageCaching(
        stage=stage,
        status=status,
        reason=reason,
        entry=earlier.key if earlier else "",
        written_at=earlier.written_at if earlier else None,
        changes=tuple(changes),
    )


def damage_of(store: Store, outcome: StageOutcome) -> str:
    """Return why an outcome cannot be used, as a clause; empty: all that it names is intact."""
    try:
        verify_outcome(store, outcome)
    except NotInStore as error:
        return f"an object of its result is missing: {error}"
    except CorruptObject as error:
        return f"an object of its result is damaged: {error}"
    return ""


def key_changes(store: Store, entry: CacheEntry, now: KnownKey) -> list[KeyChange]:
    """Return the parts of an earlier result's key that differ from the known parts of the one now."""
    before, changes = entry.key_fields, list[KeyChange]()
    if (run_id := before["run_id"]) is not None:
        changes.append(KeyChange(part="run", name="the only one", before=str(run_id), after=""))
    if now.contents is not None:
        files = parse_contents(now.listed)
        changes += _input_changes(store, _texts(before["inputs"]), now.contents, files)
    changes += _differences("setting", _texts(before["settings"]), _texts(now.settings))
    if before["code"] != now.closure.digest:
        changes += _code_changes(entry, now.closure)
    if now.libraries is not None:
        changes += _differences("library", _texts(before["libraries"]), now.libraries)
    return changes


def _code_changes(entry: CacheEntry, closure: ImportClosure) -> list[KeyChange]:
    if not entry.modules:
        old, new = str(entry.key_fields["code"])[:MODULE_DIGITS], closure.digest[:MODULE_DIGITS]
        return [KeyChange(part="module", name="(not recorded)", before=old, after=new)]
    modules = {name: sha256[:MODULE_DIGITS] for name, sha256 in closure.sources.items()}
    return _differences("module", entry.modules, modules)


def _input_changes(
    store: Store, before: Mapping[str, str], after: Mapping[str, str], files: Mapping[str, str]
) -> list[KeyChange]:
    """Return the inputs that differ, and the source files behind them where both lists of them are known.
    `files`: those of a first stage now.
    """
    inputs = _differences("input", before, after)
    old, new = _source_files(store, before), files or _source_files(store, after)
    if not inputs or not old or not new:
        return inputs
    return [*_differences("source file", old, new), *(each for each in inputs if each.name != "source")]


def _source_files(store: Store, inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each source file that inputs were made from; empty: no list of them is stored."""
    try:
        return source_files(store, inputs.get("source") or source_of(store, inputs["data"]))
    except (KeyError, IndexError, NotInStore, CorruptObject):
        return {}


def _differences(part: KeyPart, before: Mapping[str, str], after: Mapping[str, str]) -> list[KeyChange]:
    names = sorted({*before, *after})
    changes = ((name, before.get(name, ""), after.get(name, "")) for name in names)
    return [
        KeyChange(part=part, name=name, before=old, after=new) for name, old, new in changes if old != new
    ]


def _texts(value: JsonValue, prefix: str = "") -> dict[str, str]:
    """Return nested fields as NAME.NAME -> JSON of the value, text without quotes."""
    found: dict[str, str] = {}
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            found |= _texts(each, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = each if isinstance(each, str) else json.dumps(each)
    return found


def _is_of_recipe(fields: KeyFields, work: StageWork) -> bool:
    """Return whether an earlier result is of a recipe of this name, by its settings or by its data."""
    settings, inputs = _texts(fields["settings"]), _texts(fields["inputs"])
    if "name" in settings:
        return settings["name"] == work.recipe.name
    return PurePosixPath(inputs.get("data", "")).parent.name == work.recipe.name
