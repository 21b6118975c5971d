"""The keys under which a stage's result is cached: its code, its libraries, its settings and its inputs.

A router computes them without the stage's libraries, and mostly in another image than the stage's. On one
machine, router and stage share their libraries. On a cluster, the versions are those that a pod of the
stage's image found there and recorded. Until one has, no key is known, and the stage runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import JsonValue

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import DataError, NotInStore, StageFailed
from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import ClusterPod
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import put_blob
from shoestring.data.storage.import_closure import ImportClosure, import_closure, library_versions
from shoestring.runtime.admission.stages import module_name, stage_module
from shoestring.stages.work import Origin
from shoestring.training.families.recipe_needs import FAMILY_STAGES
from shoestring.training.families.registry import family_modules
from shoestring.training.model_record import ModelRecord

# The recipe's settings of money and time, which no result depends on.
BUDGET_SETTINGS = {"budget_usd", "stage_budgets_usd", "campaign", "deadline_s", "priority"}

KeyFields = dict[str, JsonValue]


class ImageLibraries(StoredRecord):
    """The versions of the libraries that an image has for a stage. Its pods write it."""

    image: str
    stage: str
    libraries: dict[str, str]


@dataclass(frozen=True, slots=True)
class StageInputs:
    """The keys of what a stage reads; empty: nothing.

    `upstream` is the manifest of its data. `side_input` is a second object that its result depends on.
    """

    upstream: str = ""
    side_input: str = ""


@dataclass(frozen=True, slots=True)
class StageWork:
    """A stage of a run, with everything that its result depends on, apart from its code."""

    recipe: Recipe
    seed: int
    run_id: str
    stage: str
    image: str
    inputs: StageInputs
    origin: Origin | None = None


def with_known_family(store: Store, work: StageWork) -> StageWork:
    """Return the work with the family of the model that it reads, and before there is one with the preferred
    one of the recipe's. A prediction reads the model of the run that admission wrote into its recipe."""
    recipe = work.recipe
    if work.stage == "predict" and recipe.model and work.origin is None:
        work = replace(work, inputs=replace(work.inputs, side_input=store_layout.model(recipe.model)))
        return replace(work, recipe=_with_family_of_model(store, work))
    if not recipe.leaves_family_open or work.stage not in FAMILY_STAGES or work.origin is not None:
        return work
    if work.stage != "evaluate" or not work.inputs.side_input:
        return replace(work, recipe=recipe.with_family(recipe.families[0].family))
    return replace(work, recipe=_with_family_of_model(store, work))


def _with_family_of_model(store: Store, work: StageWork) -> Recipe:
    settings = read_record(store, work.inputs.side_input, ModelRecord).settings
    return work.recipe.model_copy(update={"train": settings})


def lookup_keys(world: World, work: StageWork) -> tuple[str, ...]:
    """Return the keys under which a router looks for the stage's result; none if its libraries are unknown,
    or the content of a remote source.

    The first is that of all runs, unless other runs cannot use the result. The second is the run's own.
    """
    work = with_known_family(world.store, work)
    code, libraries = stage_code(work)
    versions = known_libraries(world, work.image, work.stage, libraries)
    if versions is None or (contents := input_contents(world, work)) is None:
        return ()
    return tuple(key for key, _ in _keys(work, code, versions, contents))


def shared_key(work: StageWork, libraries: dict[str, str], contents: dict[str, str]) -> tuple[str, KeyFields]:
    """Return the key of a built-in stage's result for all runs, and the values that it is the digest of."""
    code, _ = stage_code(work)
    return _keys(work, code, libraries, contents)[0]


def saving_key(world: World, work: StageWork, only_its_run: bool) -> tuple[str, KeyFields]:
    """Return the key under which this pod saves the stage's result, and the values that it is the digest of.

    Code and libraries are this pod's, which may be newer than its router's.
    """
    code = pod_closure(work)
    # A remote source that has changed since it was read: no router looks under such a key.
    contents = input_contents(world, work) or {"source": f"changed-{uuid.uuid4().hex}"}
    keys = _keys(work, code.digest, library_versions(code.libraries), contents)
    return keys[-1] if only_its_run else keys[0]


def publish_result(world: World, work: StageWork, outcome: StageOutcome) -> StageOutcome:
    """Cache what this pod computed; return the result that its run uses.

    That is another run's, where that was published while this pod computed the same. Raises StoreFull.
    """
    work = with_known_family(world.store, work)
    record_libraries(world, work)
    key, made_from = saving_key(world, work, outcome.only_its_run)
    sources = pod_closure(work).sources
    if not work.inputs.upstream and (listed := listed_contents(world, work)) is not None:
        # What the key and the data set name by its digest.
        put_blob(world.store, listed.encode())
    if made_from["run_id"] is not None:
        cache.save_outcome(world.store, key, outcome, made_from, sources)
        return outcome
    published = cache.publish_outcome(world.store, key, outcome, made_from, sources)
    if published != outcome:
        cache.copy_records(world.store, work.run_id, published)
    return published


def stage_code(work: StageWork) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a stage's code and the libraries that it imports. A router has no author's code:
    the pipeline names them.
    """
    if work.origin is not None:
        return work.origin.code, work.origin.libraries
    closure = pod_closure(work)
    return closure.digest, closure.libraries


def pod_closure(work: StageWork) -> ImportClosure:
    """Return the code that this pod has for a stage, with that of the family that it trains or uses."""
    if work.origin is not None:
        return import_closure(work.origin.module)
    family = family_modules(work.recipe.train) if work.stage in FAMILY_STAGES else ()
    return import_closure(module_name(work.stage), *family)


def known_libraries(world: World, image: str, stage: str, libraries: Iterable[str]) -> dict[str, str] | None:
    """Return the versions of these libraries where the stage runs; None while they are unknown."""
    if not isinstance(world.pod, ClusterPod):
        return library_versions(libraries)
    found = recorded_libraries(world, image, stage)
    return {name: found[name] for name in libraries} if set(libraries) <= found.keys() else None


def recorded_libraries(world: World, image: str, stage: str) -> dict[str, str]:
    """Return the versions of the libraries that pods of an image recorded for a stage; none before the
    first."""
    try:
        return read_record(world.store, _image_key(image, stage), ImageLibraries).libraries
    except (NotInStore, DataError):
        return {}


def record_libraries(world: World, work: StageWork) -> bool:
    """Record the versions of the libraries that this pod has for its stage; return whether they are new.

    On one machine nothing is recorded: router and stage share their libraries.
    """
    if not isinstance(world.pod, ClusterPod):
        return False
    libraries = pod_closure(work).libraries
    found = library_versions(libraries)
    if known_libraries(world, work.image, work.stage, libraries) == found:
        return False
    # Another family of models imports others: those of both stay known.
    known = recorded_libraries(world, work.image, work.stage)
    record = ImageLibraries(image=work.image, stage=work.stage, libraries=known | found)
    world.store.put(_image_key(work.image, work.stage), record_bytes(record))
    return True


def check_libraries(world: World, work: StageWork) -> None:
    """Raise StageFailed if this pod's image has other libraries than its router took it to have.

    An image that changes under its name is found this way, the first time that a result of the old one is
    used.
    """
    work = with_known_family(world.store, work)
    if record_libraries(world, work):
        raise StageFailed(
            f"{work.image} has other libraries than when the cached result of {work.stage} was made: they "
            "are recorded now, and a resumed run makes the result again; give a new image a new tag"
        )


def has_baseline(world: World, work: StageWork) -> bool:
    """Return whether the baseline of an evaluation is in the store, where its libraries are known."""
    # Imported here: a router of another stage does not need it.
    from shoestring.evaluation.baselines import baseline_key_fields, baseline_libraries, is_stored

    versions = known_libraries(world, work.image, work.stage, baseline_libraries())
    if versions is None or not work.inputs.upstream:
        return False
    fields = baseline_key_fields(work.inputs.upstream, work.recipe.loss, work.seed, versions)
    return is_stored(world.store, fields)


def _keys(
    work: StageWork, code: str, libraries: dict[str, str], contents: dict[str, str]
) -> tuple[tuple[str, KeyFields], ...]:
    """Return the keys of a result, and the values that each is the digest of: all runs', then its own run's.

    An author's own stage is assumed to depend on the whole recipe except its money and time.
    """
    if work.origin is not None:
        relevant = work.recipe.model_dump(mode="json", exclude=BUDGET_SETTINGS)
        settings: KeyFields = {"settings": work.origin.settings, "recipe": relevant, "seed": work.seed}
    else:
        settings = stage_module(work.stage).settings(work.recipe, work.seed)
    is_shared = work.origin is None or work.origin.shared
    return tuple(
        cache.cache_key(work.stage, code, libraries, settings, contents, run_id)
        for run_id in ((None, work.run_id) if is_shared else (work.run_id,))
    )


def input_contents(world: World, work: StageWork) -> dict[str, str] | None:
    """Return the digests of what the stage reads; None: a remote source was not fetched in its version."""
    if work.inputs.upstream:
        contents = {"data": work.inputs.upstream}
    else:
        if (listed := listed_contents(world, work)) is None:
            return None
        contents = {"source": digest(listed.encode())}
    if work.inputs.side_input:
        contents["side_input"] = digest(world.store.fetch(work.inputs.side_input).read_bytes())
    return contents


def listed_contents(world: World, work: StageWork) -> str | None:
    """Return the list of the recipe's source files and their digests; None as for `input_contents`."""
    # Imported here: only the first stage's router needs the libraries that read source files.
    from shoestring.data.sources.fingerprint import list_contents

    return list_contents(work.recipe, world.store, world.remote)


def _image_key(image: str, stage: str) -> str:
    return store_layout.image_libraries(digest(image.encode()), stage)
