"""The pipeline `shoestring-predict`: the newest evaluated model predicts new rows, as the command does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import Finished, Ran, shoestring
from same_predictions import check_same_predictions
from trained_models import FAMILIES, Trained, recipe_of, table

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.datasets import Vocabulary
from shoestring.core.errors import DataError, RecipeError, Refused, StageStopped
from shoestring.core.record import SCHEMA_VERSION, record_bytes
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_record, read_run_record
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.models.data_files import writing
from shoestring.models.model import model_at
from shoestring.models.predict_file import predict_file, predict_source
from shoestring.models.run_models import find_model_run
from shoestring.pipelines.local_runner import run_locally
from shoestring.pipelines.predict import CHAIN, predict_pipeline
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import RunSummary, summarise_run
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.runtime.records.run_setup import EngineJob
from shoestring.training.model_record import ModelRecord

ABSENT = ("arr_delay", "dep_time", "dep_delay", "arr_time", "air_time")
"""The target and the leaks."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A store with one evaluated run, and a recipe whose source are new rows without the target."""

    folder: Path
    world: Path
    model_run: str
    recipe: Recipe

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder / "store")

    @property
    def rows(self) -> Path:
        return self.folder / "new.csv"

    def __call__(self, *words: object) -> Ran:
        return shoestring(*words, "--world", self.world, "--store", self.folder / "store")

    def route(self, recipe: Recipe, run_id: str) -> Ran:
        needs = RemainingStages(schema_version=SCHEMA_VERSION, engine="kubeflow", needs=CHAIN)
        words = (
            "--needs",
            needs.model_dump_json(exclude_defaults=True),
            "--run-id",
            run_id,
            "--recipe",
            recipe.model_dump_json(),
        )
        return shoestring("route", *words, "--out", self.folder / run_id, "--world", self.world)

    def run(self, recipe: Recipe, run_id: str) -> None:
        arguments = {"recipe": recipe.model_dump_json(), "run_id": run_id, "world": str(self.world)}
        log = self.folder / f"{run_id}.log"
        assert run_locally(arguments, log, predict_pipeline), log.read_text()[-4000:]

    def summary(self, run_id: str) -> RunSummary:
        return summarise_run(read_run_story(self.store, run_id))

    def exported(self, run_id: str) -> pa.Table:
        ran = self("report", run_id, "--out", self.folder / "out" / run_id)
        assert ran.code == 0, ran.err
        return pq.read_table(self.folder / "out" / run_id / "predictions.parquet")


@pytest.fixture(scope="module")
def lab(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in which one run, `night`, has predicted already."""
    folder = tmp_path_factory.mktemp("night")
    shutil.copytree(finished.store, folder / "store")
    rows = pa.csv.read_csv(finished.recipe.parent / "flights.csv").slice(0, 3000).drop_columns(ABSENT)
    pa.csv.write_csv(rows, folder / "new.csv")
    recipe = find_recipe(str(finished.recipe))
    source = {"flights": recipe.source["flights"].model_copy(update={"path": folder / "new.csv"})}
    new = recipe.model_copy(update={"source": source, "keep": ("carrier", "flight")})
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHOESTRING_STORE", str(folder / "store"))
        lab = Lab(folder, finished.world, finished.ran.json["run_id"], new)
        lab.run(new, "night")
        yield lab


def test_the_pipeline_predicts_new_rows_without_a_target_as_the_command_does(lab: Lab) -> None:
    keep = ("--keep", "carrier", "--keep", "flight")
    ran = lab("predict", lab.model_run, lab.rows, "--out", lab.folder / "by-hand.parquet", *keep)
    assert ran.code == 0, ran.err
    found = lab.exported("night")
    check_same_predictions(found, pq.read_table(lab.folder / "by-hand.parquet"))
    assert found.column_names == [
        *("carrier", "flight", "prediction"),
        *("probability_arr_delay <= 15", "probability_arr_delay > 15"),
    ]
    assert read_run_record(lab.store, "night").recipe.model == lab.model_run
    report = (lab.folder / "out" / "night" / "report.html").read_text()
    assert f"3,000 rows predicted with the model of run <code>{lab.model_run}</code>" in report
    summary = lab.summary("night")
    assert (summary.status, [each.name for each in summary.stages]) == ("done", ["predict"])


def test_the_same_rows_are_not_predicted_twice_with_the_same_model(lab: Lab) -> None:
    lab.run(lab.recipe.model_copy(update={"model": lab.model_run}), "again")
    (stage,) = lab.summary("again").stages
    assert stage.cache_hit and not stage.spent_usd
    assert lab.exported("again") == lab.exported("night")
    # Other columns are another result.
    decided = lab.route(lab.recipe.model_copy(update={"keep": ()}), "other")
    assert decided.code == 0 and "cached" not in decided.out, decided


def test_a_model_is_named_by_the_engines_id_of_its_run_too(lab: Lab) -> None:
    lab.store.put(store_layout.job("job-7"), record_bytes(EngineJob(run_id=lab.model_run)))
    assert lab.route(lab.recipe.model_copy(update={"model": "job-7"}), "of-a-job").code == 0
    assert read_run_record(lab.store, "of-a-job").recipe.model == lab.model_run
    key = store_layout.decision("of-a-job", "predict-1")
    assert not [note for note in read_record(lab.store, key, Decision).question.notes if "keeps" in note]


def test_a_prediction_is_not_resumed_as_a_training(lab: Lab) -> None:
    ran = lab("run", "--resume", "night")
    assert (ran.code, f"`shoestring predict {lab.model_run} DATA`" in ran.err) == (2, True), ran.err


def later_run(store: FolderStore, model_run: str, run_id: str, *, is_evaluated: bool = True) -> str:
    """Add a copy of a run that began later."""
    record = read_run_record(store, model_run)
    began = record.created_at + timedelta(days=len(run_id))
    later = record.model_copy(update={"run_id": run_id, "created_at": began})
    store.put(store_layout.run_record(run_id), record_bytes(later))
    for place in (store_layout.model, store_layout.evaluation)[: 1 + is_evaluated]:
        store.put(place(run_id), store.fetch(place(model_run)).read_bytes())
    return run_id


def test_the_newest_evaluated_run_of_the_recipe_is_taken_unless_one_is_named(
    finished: Finished, tmp_path: Path
) -> None:
    recipe, first = find_recipe(str(finished.recipe)), finished.ran.json["run_id"]
    store = FolderStore(shutil.copytree(finished.store, tmp_path / "store"))
    assert find_model_run(store, recipe) == first
    newest = later_run(store, first, "a-later-run")
    later_run(store, first, "a-later-run-that-was-not-evaluated", is_evaluated=False)
    assert find_model_run(store, recipe) == newest
    assert find_model_run(store, recipe.model_copy(update={"model": first})) == first
    with pytest.raises(Refused, match=r"no run of others in this store was evaluated"):
        find_model_run(store, recipe.model_copy(update={"name": "others"}))
    model = read_record(store, store_layout.model(first), ModelRecord)
    tokens = Vocabulary(kind="bytes", size=258, start=256, padding=257, bytes_per_token=1)
    texts = model.encoding.model_copy(update={"vocabulary": tokens})
    changed = model.model_copy(update={"encoding": texts})
    store.put(store_layout.model(newest), record_bytes(changed))
    with pytest.raises(Refused, match=r"a-later-run trained a model of texts, which predicts the next token"):
        find_model_run(store, recipe)
    store.delete(store_layout.blob(model.weights_sha256))
    with pytest.raises(Refused, match=rf"{first} has no model any longer: blobs/.* was deleted, so train"):
        find_model_run(store, recipe.model_copy(update={"model": first}))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("no-such-run", "no run called 'no-such-run'"),
        ("unfinished", "unfinished was not evaluated"),
        ("night", "night was not evaluated"),
    ],
)
def test_a_run_without_an_evaluated_model_is_refused_before_anything_is_reserved(
    lab: Lab, model: str, sentence: str
) -> None:
    later_run(lab.store, lab.model_run, "unfinished", is_evaluated=False)
    ran = lab.route(lab.recipe.model_copy(update={"model": model}), f"with-{model}")
    assert (ran.code, sentence in ran.err) == (1, True), ran.err
    assert [*lab.store.list(store_layout.run(f"with-{model}"))] == [store_layout.step_error(f"with-{model}")]
    assert (lab.folder / f"with-{model}" / "refused").exists()


def new_rows(folder: Path, count: int = 50) -> Recipe:
    """Write rows without the target; return the recipe that predicts them, with a table of places."""
    pa.csv.write_csv(table(count, seed=5).drop_columns(["grade", "price"]), folder / "homes.csv")
    (folder / "places.csv").write_text("place,region,height\n3,region 1,999.5\n")
    return recipe_of(folder, "grade", train=FAMILIES["blend"])


def recipe_at(file: Path) -> Recipe:
    recipe = recipe_of(file.parent, "grade", train=FAMILIES["blend"])
    homes = recipe.source["homes"].model_copy(update={"path": file})
    return recipe.model_copy(update={"source": recipe.source | {"homes": homes}, "keep": ("id", "when")})


def quiet(rows: int) -> None:
    """Report nothing."""


def predicted(trained: Trained, recipe: Recipe, out: Path) -> pa.Table:
    model = model_at(trained.folder / "model")
    predict_source(model, recipe, trained.store, NO_REMOTE_SOURCES, out, quiet)
    return pq.read_table(out)


def test_a_joined_table_is_that_of_the_recipe_or_else_the_one_kept_with_the_model(
    blend: Trained, tmp_path: Path
) -> None:
    recipe, model = new_rows(tmp_path), model_at(blend.folder / "model")
    homes, out = tmp_path / "homes.csv", tmp_path / "out.parquet"
    predict_file(model, homes, out, tables={"places": tmp_path / "places.csv"})
    given = pq.read_table(out)
    assert predicted(blend, recipe, out) == given
    alone = recipe.model_copy(update={"source": {"homes": recipe.source["homes"]}, "joins": ()})
    predict_file(model, homes, out)
    kept = pq.read_table(out)
    assert predicted(blend, alone, out) == kept != given


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_morning_without_rows_gives_a_file_without_rows(
    blend: Trained, tmp_path: Path, suffix: str
) -> None:
    new_rows(tmp_path)
    rows = table(20).drop_columns(["grade", "price"])
    for count, name in ((20, "some"), (0, "none")):
        with writing(tmp_path / f"{name}{suffix}") as write:
            write(rows.slice(0, count))
    some, none = (
        predicted(blend, recipe_at(tmp_path / f"{name}{suffix}"), tmp_path / "out.parquet")
        for name in ("some", "none")
    )
    assert (some.num_rows, none.num_rows, none.schema) == (20, 0, some.schema)


def test_data_that_changes_while_it_is_predicted_is_no_result(blend: Trained, tmp_path: Path) -> None:
    recipe, model = new_rows(tmp_path), model_at(blend.folder / "model")

    def change(rows: int) -> None:
        pa.csv.write_csv(table(60, seed=6), tmp_path / "homes.csv")

    with pytest.raises(DataError, match="the source data changed while it was read"):
        predict_source(model, recipe, blend.store, NO_REMOTE_SOURCES, tmp_path / "out.parquet", change)


def test_a_prediction_that_is_stopped_leaves_no_file(blend: Trained, tmp_path: Path) -> None:
    recipe, model = new_rows(tmp_path), model_at(blend.folder / "model")

    def stop(rows: int) -> None:
        raise StageStopped(f"at {rows} rows")

    with pytest.raises(StageStopped, match="at 50 rows"):
        predict_source(model, recipe, blend.store, NO_REMOTE_SOURCES, tmp_path / "out.parquet", stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["homes.csv", "places.csv"]


def test_other_images_than_the_models_are_refused(blend: Trained, tmp_path: Path) -> None:
    recipe, model = new_rows(tmp_path), model_at(blend.folder / "model")
    images = recipe.source["homes"].model_validate({"path": tmp_path, "image": {"size": [8, 8]}})
    other = recipe.model_copy(update={"source": {"homes": images}})
    with pytest.raises(RecipeError, match="differs from that of the model's recipe"):
        predict_source(model, other, blend.store, NO_REMOTE_SOURCES, tmp_path / "out.parquet", quiet)
