"""The model families, and the section `train` of a recipe, whose keys the family owns that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, SerializeAsAny
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from shoestring.core.record import Record

FAMILIES = {
    "table_net": "shoestring.training.families.table_net.settings:TableNetSettings",
    "text_net": "shoestring.training.families.text_net.settings:TextNetSettings",
}
"""Name of a family -> MODULE:CLASS of its settings, a subclass of `FamilySettings`.

A module is imported when a recipe names its family. It is no part of the code that the result of a stage
depends on: the train stage itself imports the families that it trains.
"""

DEFAULT_FAMILY = "table_net"


class FamilySettings(Record):
    """The training settings that all families have. Each adds its own."""

    learns_from: ClassVar[Literal["tables", "texts"]] = "tables"

    family: str
    max_epochs: int = Field(
        30, ge=1, le=1000, description="maximum number of epochs, even when the budget allows more"
    )
    rows_share: float = Field(
        1.0,
        gt=0,
        le=1,
        exclude_if=lambda share: share == 1,
        description="share of train's rows to train on, to try a recipe for less; "
        "a larger share holds the rows of a smaller one",
    )
    patience: int = Field(
        2, ge=1, description="validations without improvement (two an epoch) before the decay starts"
    )
    learning_rate: float = Field(gt=0, description="peak learning rate")


def settings_of(section: Any) -> Any:
    """Return the settings of the family that a section names; without a name it is `DEFAULT_FAMILY`.

    Settings are returned as they are. Raises ValueError for an unknown family or a wrong key.
    """
    if isinstance(section, FamilySettings):
        return section
    if not isinstance(section, Mapping):
        raise ValueError("the keys of a family are expected, such as `max_epochs: 10`")
    family = section.get("family", DEFAULT_FAMILY)
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}: choose one of {', '.join(FAMILIES)}")
    return settings_class(family).model_validate(dict(section))


def default_settings() -> FamilySettings:
    """Return the settings of a recipe that has no section."""
    return settings_class(DEFAULT_FAMILY).model_validate({})


def settings_class(family: str) -> type[FamilySettings]:
    """Return the class of a family's settings."""
    found: type[FamilySettings] = resolve_name(FAMILIES[family])
    return found


class _KeysOfEachFamily:
    """Describes a section in a JSON schema as the settings of one of the families."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [settings_class(family).model_json_schema() for family in FAMILIES]}


TrainSection = Annotated[
    SerializeAsAny[FamilySettings],
    BeforeValidator(settings_of),
    _KeysOfEachFamily(),
]
"""The settings of any family, in a record."""


def require_samples(settings: FamilySettings, samples: Literal["tables", "texts"]) -> None:
    """Check that a family learns from the samples of a recipe. Raises ValueError."""
    if settings.learns_from != samples:
        raise ValueError(
            f"train.family: {settings.family} learns from {settings.learns_from}, and the samples of this "
            f"recipe are {samples}"
        )
