"""The needs of the built-in stages for one recipe and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from shoestring.core.datasets import Encoding
from shoestring.core.types import Need
from shoestring.data.needs.image_needs import with_images
from shoestring.data.needs.table_needs import NO_TABLES, TableSizes, with_tables
from shoestring.data.recipe import Recipe
from shoestring.data.source import TextSettings
from shoestring.training.families.boosted.settings import BASELINE
from shoestring.training.families.data_shape import DataShape, recipe_shape
from shoestring.training.families.gpu_needs import NO_GPU
from shoestring.training.families.registry import family_of, whole_training

FAMILY_STAGES = ("train", "evaluate", "predict")
"""The built-in stages that run the code of the recipe's model family."""

BPE_US_PER_BYTE = 1.5
"""Estimated microseconds of a reference core to train and apply a byte-pair vocabulary, for each byte."""


def work_name(recipe: Recipe, stage: str) -> str:
    """Return the name under which the speed of a stage is learned: families of models differ in it."""
    return f"{recipe.name} {recipe.train.family}" if stage in FAMILY_STAGES else recipe.name


WORK_OF_A_ROW = ("cpu_us_per_row", "gpu_flop_per_row", "gpu_bytes_per_row", "gpu_host_us_per_row")


@dataclass(frozen=True)
class RecipeNeeds:
    """Computes the needs of stages from a recipe, and the data set as far as it is known.

    `row_bytes`: of the input of the first stage of a question, whose later ones are computed from it; `rows`:
    of this input. `tables`: the sizes of its tables, until they are encoded. `encoding`: of the data set,
    once it is encoded. `has_baseline`: the store has that of the evaluation. `on_gpus`: networks may be
    trained on GPUs.
    """

    recipe: Recipe
    rows: int = 0
    row_bytes: int = 0
    encoding: Encoding | None = None
    tables: TableSizes = NO_TABLES
    has_baseline: bool = False
    on_gpus: bool = True

    @cached_property
    def shape(self) -> DataShape:
        return recipe_shape(self.recipe, self.rows, self.row_bytes, self.encoding)

    def of_stage(self, need: Need) -> Need:
        """Return the need with the name of its work, for the family and the samples of the recipe.

        Where the family is not chosen yet, it is that of the one whose fewest samples take longest.
        """
        recipe = self.recipe
        if need.stage in FAMILY_STAGES and recipe.leaves_family_open:
            each = [replace(self, recipe=recipe.with_family(name.family)) for name in recipe.families]
            return max((of_one.of_stage(need) for of_one in each), key=self._shortest_s)
        need = need.model_copy(update={"work": need.work or work_name(recipe, need.stage)})
        if recipe.text is not None and need.stage == "preprocess":
            need = with_vocabulary(need, recipe.text)
        if recipe.image is not None:
            need = with_images(need, recipe.image, self.row_bytes)
        if recipe.samples == "tables":
            need = with_tables(need, recipe, self.tables, self.rows)
        if need.stage == "train":
            need = family_of(recipe.train).train_need(need, self.shape)
            need = need if self.on_gpus else need.model_copy(update=NO_GPU)
        if need.stage == "evaluate":
            need = self._evaluation(family_of(recipe.train).evaluate_need(need, self.shape))
            need = need if self.on_gpus else need.model_copy(update=NO_GPU)
        if need.stage == "predict":
            need = family_of(recipe.train).evaluate_need(need, self.shape)
        return self._limited(need) if need.elastic else need

    def _shortest_s(self, need: Need) -> float:
        """Return the seconds that the fewest samples take on a reference core."""
        passes = need.min_passes if need.elastic else need.passes
        return need.setup_s + 1e-6 * need.cpu_us_per_row * self.rows * passes

    def _evaluation(self, need: Need) -> Need:
        """Return the need of an evaluation, with the training of its baseline."""
        recipe = self.recipe
        if recipe.samples != "tables":
            # It reads the test split alone. The baselines of texts take a second, and are made each time;
            # images have none but the prior.
            return need.model_copy(
                update={name: getattr(need, name) * recipe.split.test for name in WORK_OF_A_ROW}
            )
        if self.has_baseline or recipe.train == BASELINE:
            return need
        setup_s, us_per_row = whole_training(BASELINE, self.shape)
        more = {"setup_s": need.setup_s + setup_s, "cpu_us_per_row": need.cpu_us_per_row + us_per_row}
        return need.model_copy(update={name: round(value, 4) for name, value in more.items()})

    def _limited(self, need: Need) -> Need:
        """Return the need of an elastic stage, which reads its data at most as often as the recipe allows.

        An epoch over a share of the rows is that share of a pass.
        """
        train = self.recipe.train
        passes = min(need.passes, float(train.most_epochs())) * train.rows_share
        return need.model_copy(update={"passes": passes, "min_passes": min(need.min_passes, passes)})


def with_vocabulary(need: Need, text: TextSettings) -> Need:
    """Return the need of preprocess for texts: it may train a vocabulary."""
    if text.vocabulary is None:
        return need
    row_bytes = text.row_tokens * text.bytes_per_token
    return need.model_copy(update={"cpu_us_per_row": BPE_US_PER_BYTE * row_bytes})
