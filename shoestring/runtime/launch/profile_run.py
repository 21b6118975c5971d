"""The profile of a recipe's training: its prepared data, its network, and a command's run around it."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.data.families import DEFAULT_FAMILY, require_samples, settings_of
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest
from shoestring.runtime.admission.first_request import stages_to_pay
from shoestring.runtime.launch.run_request import new_request
from shoestring.spending.meter import Meter
from shoestring.training.families.registry import family_of
from shoestring.training.frameworks.net_settings import NetSettings
from shoestring.training.own_loop.budget import Budget
from shoestring.training.task import TrainingTask


def with_network(recipe: Recipe, family: str | None) -> Recipe:
    """Return the recipe with a network: the named family, with its settings where the recipe has some; else
    the first network of the recipe; else the default family.

    Raises UsageError: the named one is no network, or does not learn from these samples.
    """
    of_recipe = [each for each in recipe.families if isinstance(each, NetSettings)]
    known = {each.family: each for each in of_recipe}
    name = family or (of_recipe[0].family if of_recipe else DEFAULT_FAMILY)
    try:
        found = known.get(name) or settings_of({"family": name})
        if not isinstance(found, NetSettings):
            raise ValueError(f"{name} is no network, so it has no steps to profile")
        require_samples(found, recipe.samples)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return recipe.model_copy(update={"train": found})


def prepared_data(world: World, recipe: Recipe) -> str:
    """Return the key of the recipe's data set, as preprocess left it. Raises UsageError: there is none."""
    needs, inputs = stages_to_pay(world, new_request(world, recipe, None, None, None))
    if needs[0].stage not in ("train", "evaluate"):
        raise UsageError(
            f"the data of {recipe.name} are not prepared in this store: `shoestring run {recipe.name}` does "
            "that, and keeps them"
        )
    return inputs.upstream


def profile_steps(world: World, recipe: Recipe, device: str, scratch: Path) -> None:
    """Make the steps of a profile in this process, which `shoestring exec --profile` has started.

    Raises StageFailed, DataError."""
    from shoestring.training.frameworks.torch_.net_learner import NetLearner
    from shoestring.training.frameworks.torch_.profiling.profiled_net import ProfiledNet

    manifest, budget = load_manifest(world.store, prepared_data(world, recipe)), Budget.here()
    cores = len(os.sched_getaffinity(0))
    task = TrainingTask(
        run_id="profile",
        seed=recipe.seed,
        encoding=require_encoding(manifest).model_copy(update={"loss": recipe.loss}),
        settings=recipe.train,
        train=open_split(world.store, manifest, "train", scratch),
        validation=open_split(world.store, manifest, "val"),
        store=world.store,
        meter=Meter(Decimal(0), world.clock.monotonic_s(), Decimal(0), None),
        clock=world.clock,
        cores=cores,
        report_progress=lambda progress: None,
        should_stop=lambda: budget.should_stop,
        adaptation_limits=world.policy.adaptation_limits,
        device=device,
    )
    learner = family_of(task.settings).learner(task)
    assert isinstance(learner, NetLearner)
    ProfiledNet(learner, task, cores).run(lambda: budget.should_stop)
