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
register("linear", "shoestring.training.families.linear.family:LinearFamily")
register("blend", "shoestring.training.families.blend.family:BlendFamily")
register("image_net", "shoestring.training.families.image_net.family:ImageNetFamily")
register("text_net", "shoestring.training.families.text_net.family:TextNetFamily")
register("transformer", "shoestring.training.families.transformer.family:TransformerFamily")

AUTO, DEFAULT_FAMILY = "auto", "table_net"
"""The choice of a family by the route step, and the family of a section whose keys name none."""

SampleKind = Literal["tables", "images", "texts"]


class FamilySettings(Record):
    """The settings that all families have. Each adds its own."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("tables",)
    epochs_name: ClassVar[str] = "epochs"
    expected_epochs: ClassVar[float] = 4.0
    """Epochs after which a training on enough rows mostly ends by itself."""
    enough_epochs: ClassVar[float] = 1.0
    """Epochs from which `auto` prefers the family to those behind it."""

    family: str
    rows_share: float = Field(
        1.0,
        gt=0,
        le=1,
        exclude_if=lambda share: share == 1,
        description="share of train's rows to train on, to try a recipe for less; "
        "a larger share holds the rows of a smaller one",
    )

    def most_epochs(self) -> int:
        """Return the epochs after which a training ends, if the loss still improves and money is left."""
        raise NotImplementedError

    def members_for(self, rows: int) -> tuple[LearnerSettings, ...]:
        """Return the settings of the members of a blend that is trained on `rows` rows, in order; none for a
        family with a learner."""
        return ()


class LearnerSettings(FamilySettings):
    """The settings of a family with one learner."""

    min_steps_per_epoch: ClassVar[int] = 32
    """A small table gets smaller batches, so that an epoch has at least this many steps."""

    max_epochs: int = Field(
        30, ge=1, le=1000, description="maximum number of epochs, even when the budget allows more"
    )
    patience: int = Field(
        2, ge=1, description="validations without improvement (two an epoch) before the decay starts"
    )
    learning_rate: float = Field(gt=0, description="peak learning rate")

    def most_epochs(self) -> int:
        return self.max_epochs


AUTO_FAMILIES: dict[SampleKind, tuple[str, ...]] = {
    "tables": ("blend", "boosted", "linear"),
    "images": ("image_net", "table_net"),
    "texts": ("transformer", "text_net"),
}
"""The families that `auto` chooses among, the preferred first."""


class AutoSettings(FamilySettings):
    """No family yet: the route step of the training chooses one, with its default settings, for the data, the
    money and the time that there are then."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("tables", "images", "texts")

    family: Literal["auto"] = "auto"

    def most_epochs(self) -> int:
        return max(each.most_epochs() for each in self.candidates("tables"))

    def candidates(self, samples: SampleKind) -> tuple[FamilySettings, ...]:
        """Return the settings of the families that learn from these samples, the preferred first."""
        share = {} if self.rows_share == 1 else {"rows_share": self.rows_share}
        return tuple(settings_of({"family": name} | share) for name in AUTO_FAMILIES[samples])


def settings_of(section: Any) -> Any:
    """Return the settings of the family that a section names; without a name it is `DEFAULT_FAMILY`.

    Settings are returned as they are. Raises ValueError for an unknown family or a wrong key.
    """
    if isinstance(section, FamilySettings):
        return section
    if not isinstance(section, Mapping):
        raise ValueError("the keys of a family are expected, such as `max_epochs: 10`")
    family = section.get("family", DEFAULT_FAMILY)
    if not isinstance(family, str) or family not in (AUTO, *FAMILIES):
        raise ValueError(f"there is no family {family!r}: choose one of {', '.join((AUTO, *FAMILIES))}")
    settings = settings_class(family)
    for key in section:
        if key not in settings.model_fields and (owners := families_with(key)):
            raise ValueError(
                f"{key} is a key of {' and '.join(owners)}, and this family is {family}: its keys are "
                f"{', '.join(settings.model_fields)}"
            )
    return settings.model_validate(dict(section))


def families_with(key: str) -> list[str]:
    """Return the families that have a key."""
    return [family for family in FAMILIES if key in settings_class(family).model_fields]


def settings_class(family: str) -> type[FamilySettings]:
    """Return the class of a family's settings."""
    if family == AUTO:
        return AutoSettings
    found: type[FamilySettings] = resolve_name(FAMILIES[family]).settings_type
    return found


class _KeysOfEachFamily:
    """Describes a section in a JSON schema as the settings of one of the families."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [settings_class(family).model_json_schema() for family in (AUTO, *FAMILIES)]}


TrainSection = Annotated[
    SerializeAsAny[FamilySettings],
    BeforeValidator(settings_of),
    _KeysOfEachFamily(),
]
"""The settings of any family, in a record."""


def member_settings_of(section: Any) -> LearnerSettings:
    """Return the settings of a member of a blend. Raises ValueError as `settings_of`, and for a family that
    has no learner of its own."""
    found = settings_of(section)
    if not isinstance(found, LearnerSettings):
        raise ValueError(f"{found.family} cannot be a member of a blend")
    return found


class _KeysOfEachMember:
    """Describes a member of a blend in a JSON schema as the settings of one of the families with learners."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        settings = map(settings_class, FAMILIES)
        return {"anyOf": [each.model_json_schema() for each in settings if issubclass(each, LearnerSettings)]}


MemberSection = Annotated[
    SerializeAsAny[LearnerSettings],
    BeforeValidator(member_settings_of),
    _KeysOfEachMember(),
]
"""The settings of a member of a blend."""


def require_samples(settings: FamilySettings, samples: SampleKind) -> None:
    """Check that a family learns from the samples of a recipe. Raises ValueError."""
    if samples not in settings.learns_from:
        raise ValueError(
            f"train.family: {settings.family} learns from {' and '.join(settings.learns_from)}, and the "
            f"samples of this recipe are {samples}"
        )
