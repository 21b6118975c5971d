"""The model families, and the section `train` of a recipe, whose keys the family owns that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, SerializeAsAny
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from shoestring.core.record import Record

FAMILIES: dict[str, str] = {}
"""Name of a family -> MODULE:CLASS, a `shoestring.training.families.registry.Family`.

A module is imported when a recipe names its family. Its code is part of what the results of train and
evaluate depend on, and of no other stage's.
"""


def register(family: str, place: str) -> None:
    """Add a family. Raises ValueError for a name that another one has."""
    if family in FAMILIES:
        raise ValueError(f"there is a family {family} already: {FAMILIES[family]}")
    FAMILIES[family] = place


register("table_net", "shoestring.training.families.table_net.family:TableNetFamily")
register("boosted", "shoestring.training.families.boosted.family:BoostedFamily")
register("text_net", "shoestring.training.families.text_net.family:TextNetFamily")

DEFAULT_FAMILY = "table_net"

SampleKind = Literal["tables", "images", "texts"]


class FamilySettings(Record):
    """The training settings that all families have. Each adds its own."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("tables",)
    epochs_name: ClassVar[str] = "epochs"

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
    found: type[FamilySettings] = resolve_name(FAMILIES[family]).settings_type
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


def require_samples(settings: FamilySettings, samples: SampleKind) -> None:
    """Check that a family learns from the samples of a recipe. Raises ValueError."""
    if samples not in settings.learns_from:
        raise ValueError(
            f"train.family: {settings.family} learns from {' and '.join(settings.learns_from)}, and the "
            f"samples of this recipe are {samples}"
        )
