"""The recipe of a pipeline: the data, the target and the training settings, parsed from YAML into a
frozen `Recipe`."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from shoestring.config.budgets import CAMPAIGN_NAME
from shoestring.config.engines import DeadlineKind
from shoestring.config.policy import Priority
from shoestring.core.datasets import IMAGE_COLUMN, Loss
from shoestring.core.errors import RecipeError
from shoestring.core.money import Usd, usd
from shoestring.core.record import Record
from shoestring.data.families import AutoSettings, FamilySettings, SampleKind, TrainSection, require_samples
from shoestring.data.metrics import METRICS, Metric, Task, loss_of, no_metric
from shoestring.data.source import ImageSettings, Source, StatedKind, TextSettings
from shoestring.data.split_settings import SPLIT_COLUMN, Split
from shoestring.data.text_defaults import require_texts_alone, with_text_defaults

MAX_CATEGORIES = 1 << 16

TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


class Join(Record):
    """A left join of the main table with another: every row of the main table is kept exactly once."""

    table: str
    by: tuple[str, ...] = Field(
        min_length=1,
        description="columns that both tables have; together they identify at most one row of `table`",
    )
    columns: tuple[str, ...] = Field(min_length=1, description="columns of `table` to add")
    allow_unmatched: bool = Field(
        False,
        exclude_if=lambda allowed: not allowed,
        description="accept that no row of the main table finds a row of `table`",
    )


class Target(Record):
    """The target of the prediction."""

    column: str
    above: float | None = Field(
        None, description="predict whether `column` is above this number, instead of its value"
    )
    task: Task | None = Field(None, description="inferred from the column when not given")

    @model_validator(mode="after")
    def _above_is_binary(self) -> Self:
        if self.above is not None and self.task not in (None, "binary"):
            raise ValueError(
                f"`above` makes the task binary, so `task` cannot be {self.task}: remove one of them"
            )
        return self


class Recipe(Record):
    """One prediction task on one data set. Required are `name`, `source` with one table, and `target`
    with its column; texts have no target."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="names the data sets and runs made from it"
    )
    source: dict[TableName, Source] = Field(min_length=1, description="table name -> where it is read from")
    main: str = Field(
        "", description="the table whose rows are the samples; required when there is more than one table"
    )
    joins: tuple[Join, ...] = ()
    target: Target
    weight: str = Field(
        "",
        exclude_if=lambda weight: not weight,
        description="column of numbers, 0 or more, that rows count in the loss and metrics; no feature",
    )
    leaks: tuple[str, ...] = Field(
        (), description="columns that are only known after the prediction; never used as features"
    )
    categorical: tuple[str, ...] = Field(
        (),
        description=(
            "categorical features; all features are inferred when none are named here or in the next 3 keys"
        ),
    )
    numeric: tuple[str, ...] = Field((), description="numeric features")
    dates: tuple[str, ...] = Field(
        (),
        exclude_if=lambda dates: not dates,
        description="dates to use as features: month, weekday, hour and the moment itself; default: as above",
    )
    texts: tuple[str, ...] = Field(
        (),
        exclude_if=lambda texts: not texts,
        description="text whose words and pairs of words are features, hashed; with `categorical` it is both",
    )
    kinds: dict[str, StatedKind] = Field(
        {},
        exclude_if=lambda kinds: not kinds,
        description="column -> how its text is read; others are inferred, and fixed by the first version",
    )
    max_categories: int = Field(
        MAX_CATEGORIES,
        ge=1,
        le=1 << 20,
        exclude_if=lambda most: most == MAX_CATEGORIES,
        description="values of a category with codes of their own; further ones share 4,096 hashed codes",
    )
    split: Split = Split()
    metric: Metric | None = Field(
        None,
        description="primary metric of the evaluation, and what training minimises: log loss (for "
        "balanced_accuracy with classes of equal weight), squared error, absolute error for mae, or the loss "
        "of `quantile` for quantile_loss",
    )
    quantile: float | None = Field(
        None,
        gt=0,
        lt=1,
        exclude_if=lambda quantile: quantile is None,
        description="the quantile to predict, with `metric: quantile_loss`",
    )
    budget_usd: Usd = Field(usd("0.01"), description="budget of a run in dollars, unless --budget is given")
    priority: Priority = Field(
        "normal",
        description="low: may be delayed, and yields at peak; high: is never delayed; see docs/policies.md",
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="maximum duration of a run in seconds, unless --deadline is given; null: no limit",
    )
    deadline_kind: DeadlineKind = Field(
        "soft",
        exclude_if=lambda kind: kind == "soft",
        description="soft: stages after the training run late rather than not at all; hard: they do not",
    )
    campaign: str = Field(
        "",
        pattern=f"^({CAMPAIGN_NAME})?$",
        description="the campaign, named in the world's budgets, whose cap applies as well",
    )
    seed: int = Field(0, ge=0, lt=1 << 32)
    stage_budgets_usd: dict[str, Usd] = Field(
        {}, description="stage -> its maximum spend in dollars; other stages share the run's budget"
    )
    train: TrainSection = Field(default_factory=AutoSettings)
    model: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_-]{0,100}$",
        exclude_if=lambda model: not model,
        description="`predict` alone reads it: the run whose model predicts; default: the newest evaluated "
        "run of `name`",
    )
    keep: tuple[str, ...] = Field(
        (),
        exclude_if=lambda keep: not keep,
        description="`predict` alone reads it: columns of the main table to repeat before the predictions",
    )

    @field_validator("budget_usd", "stage_budgets_usd")
    @classmethod
    def _budgets_are_positive(cls, found: Any) -> Any:
        for name, budget_usd in found.items() if isinstance(found, dict) else [("a run", found)]:
            if budget_usd <= 0:
                raise ValueError(f"${budget_usd} for {name} is not a budget: it must be above 0")
        return found

    @model_validator(mode="before")
    @classmethod
    def _only_table_is_main(cls, data: Any) -> Any:
        data = with_text_defaults(data)
        if (
            isinstance(data, dict)
            and not data.get("main")
            and isinstance(tables := data.get("source"), dict)
            and len(tables) == 1
        ):
            return {**data, "main": next(iter(tables))}
        return data

    @model_validator(mode="after")
    def _metric_fits(self) -> Self:
        task: Task | None = "binary" if self.target.above is not None else self.target.task
        if task and (reason := no_metric(self.metric, task)):
            raise ValueError(f"metric: {reason}")
        if (self.metric == "quantile_loss") != (self.quantile is not None):
            raise ValueError("`metric: quantile_loss` and `quantile`, such as 0.9, belong together")
        return self

    def metric_for(self, task: Task) -> Metric:
        """Return the primary metric for a task. Raises RecipeError when the recipe's does not apply to it."""
        if reason := no_metric(self.metric, task):
            raise RecipeError(f"metric: {reason}")
        return self.metric or METRICS[task][0]

    @property
    def loss(self) -> Loss:
        """What training minimises."""
        return loss_of(self.metric, self.quantile)

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        tables = ", ".join(self.source)
        if self.main not in self.source:
            raise ValueError(f"`main` is {self.main!r}, and must be one of the tables in `source`: {tables}")
        for join in self.joins:
            if join.table not in self.source or join.table == self.main:
                raise ValueError(
                    f"a join names the table {join.table!r}, and must name a table in `source` other than "
                    f"{self.main!r}: {tables}"
                )
        if images := [name for name, source in self.source.items() if source.image and name != self.main]:
            raise ValueError(f"`image` belongs to the main table {self.main!r}, not to {images[0]!r}")
        if any(source.text for source in self.source.values()):
            given = {
                "a second table in `source`": len(self.source) > 1,
                "the features": self.names_features,
                "`weight`": bool(self.weight),
                "`leaks`": bool(self.leaks),
                "`kinds`": bool(self.kinds),
                "`max_categories`": self.max_categories != MAX_CATEGORIES,
                "`split.time`": bool(self.split.time),
                "`split.column`": bool(self.split.column),
            }
            require_texts_alone(self.target.model_dump(), given)
        elif self.target.task == "next_token":
            raise ValueError("the task next_token is that of texts: set `text` in the source")
        self.split.require_alone({name: each.splits for name, each in self.source.items()}, self.main)
        features = (*self.categorical, *self.numeric, *self.dates, *self.texts)
        require_samples(self.train, self.samples)
        # Only a category may be named again, for its words.
        named = [(*each, *self.numeric, *self.dates) for each in (self.categorical, self.texts)]
        if repeated := sorted({name for each in named for name in each if each.count(name) > 1}):
            raise ValueError(f"features named twice: {', '.join(repeated)}")
        if leaking := sorted(set(features) & {*self.leaks, self.target.column}):
            raise ValueError(f"named as features, but also in `leaks` or as the target: {', '.join(leaking)}")
        if self.weight and (*features, *self.unused_columns).count(self.weight) > 1:
            raise ValueError(f"{self.weight} is the weight, and is named elsewhere too: remove one of them")
        return self

    @property
    def split_column(self) -> str:
        """The column of the main table that names the split of each row; empty: none does."""
        return SPLIT_COLUMN if self.source[self.main].splits else self.split.column

    @property
    def names_features(self) -> bool:
        """True if the recipe names features, so that none are inferred."""
        return bool(self.categorical or self.numeric or self.dates or self.texts)

    @property
    def unused_columns(self) -> tuple[str, ...]:
        """The columns that are no features, whatever they hold, unless the recipe names them."""
        named = (
            self.target.column,
            self.weight,
            *self.leaks,
            *self.split.by,
            self.split_column,
            *self.image_columns,
        )
        return tuple(filter(None, named))

    @property
    def image(self) -> ImageSettings | None:
        """How the images of the samples are stored; None: the samples are rows of a table alone."""
        return self.source[self.main].image

    @property
    def text(self) -> TextSettings | None:
        """How texts are cut into rows; None: the samples are no texts."""
        return self.source[self.main].text

    @property
    def samples(self) -> SampleKind:
        return "texts" if self.text else "images" if self.image else "tables"

    @property
    def families(self) -> tuple[FamilySettings, ...]:
        """The settings of the families that may be trained, the preferred first."""
        return self.train.candidates(self.samples) if isinstance(self.train, AutoSettings) else (self.train,)

    @property
    def leaves_family_open(self) -> bool:
        """True if the route step of the training chooses the family."""
        return isinstance(self.train, AutoSettings)

    def with_family(self, family: str) -> Recipe:
        """Return the recipe that trains one of its families. Raises StopIteration: it is none of them."""
        chosen = next(each for each in self.families if each.family == family)
        return self.model_copy(update={"train": chosen})

    @property
    def image_columns(self) -> tuple[str, ...]:
        """The columns of images and of their paths, which are no features."""
        return () if self.image is None else (IMAGE_COLUMN, self.image.column)
