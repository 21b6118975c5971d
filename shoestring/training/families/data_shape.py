"""The shape of a data set, from which families compute what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoestring.core.datasets import Encoding
from shoestring.data.needs.table_needs import VALUE_BYTES
from shoestring.data.recipe import Recipe

EXPECTED_CARDINALITY, BYTES_VOCABULARY = 100, 256


@dataclass(frozen=True, slots=True)
class DataShape:
    """The inputs and outputs of a model of a data set.

    `rows`: of all splits. `cardinalities`: of the categorical features. `image`: channels, height and width.
    `outputs`: the classes of more than two; else 1.
    """

    rows: int
    numbers: int = 0
    cardinalities: tuple[int, ...] = ()
    image: tuple[int, ...] = ()
    row_tokens: int = 0
    vocabulary: int = 0
    outputs: int = 1

    @property
    def pixels(self) -> int:
        """Values of an image."""
        return math.prod(self.image) if self.image else 0


def encoded_shape(encoding: Encoding, rows: int) -> DataShape:
    """Return the shape of an encoded data set."""
    categories = tuple(each.cardinality for each in encoding.features if each.kind == "categorical")
    images, tokens = encoding.of_use("image"), encoding.of_use("tokens")
    return DataShape(
        rows=rows,
        numbers=len(encoding.features) - len(categories),
        cardinalities=categories,
        image=images[0].shape if images else (),
        row_tokens=sum(math.prod(each.shape) for each in tokens),
        vocabulary=encoding.vocabulary.size if encoding.vocabulary else 0,
        outputs=len(encoding.classes) if encoding.task == "multiclass" else 1,
    )


def recipe_shape(recipe: Recipe, rows: int, row_bytes: int, encoding: Encoding | None) -> DataShape:
    """Return the shape of the data set that a recipe makes.

    `rows` and `row_bytes`: of what is known of it now. Without an encoding the features are those that the
    recipe names, each category of `EXPECTED_CARDINALITY` values; or as many numbers as a row has values.
    """
    if encoding is not None:
        return encoded_shape(encoding, rows)
    if recipe.text is not None:
        vocabulary = recipe.text.vocabulary or BYTES_VOCABULARY
        return DataShape(rows, row_tokens=recipe.text.row_tokens, vocabulary=vocabulary)
    if recipe.image is not None:
        return DataShape(rows, image=recipe.image.shape)
    if recipe.names_features:
        categories = (EXPECTED_CARDINALITY,) * len(recipe.categorical)
        return DataShape(rows, len(recipe.numeric) + len(recipe.dates), categories)
    return DataShape(rows, max(1, row_bytes // VALUE_BYTES))
