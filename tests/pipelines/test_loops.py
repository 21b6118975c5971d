"""Stages in loops: compiled with what their routers have to know, and run in KFP's local runner, which works
on two items at a time.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kfp import compiler, dsl
from local_runs import LocalRun, run_few

from shoestring.cli.authoring.upload import read_pipeline
from shoestring.components.ingest import ingest
from shoestring.core.attempt_id import item_of
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.compiled_tasks import CompiledTask, compiled_tasks, constant
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step, stages_from
from shoestring.spending.meter import cost_usd
from shoestring.stages.ingest import NEED as INGEST

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)
FIRST = (Need(stage="first", items=2),)
SECONDS = [0.3, 1.2, 0.1, 0.8, 0.2, 0.6, 0.4, 0.1]
STAGES = (
    Need(stage="begin", after=(), setup_s=1.0),
    Need(stage="work", items=8, after=("begin",), setup_s=2.0),
    Need(stage="joined", after=("work",), setup_s=1.0),
)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def echo(text: str) -> str:
    return text


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def lists(word: str) -> NamedTuple("Lists", [("words", list), ("word", str)]):  # type: ignore[valid-type]
    from typing import NamedTuple

    return NamedTuple("Lists", [("words", list), ("word", str)])([f"{word}{{{{1}}}}", f"{word}2"], word)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def work(seconds: float, word: str) -> str:
    import time

    time.sleep(seconds)
    if word == "fail" and seconds == 0.1:
        raise ValueError(f"{seconds} is too short")
    return f"{word} {seconds}"


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def join(texts: list) -> str:  # type: ignore[type-arg]
    return ", ".join(texts)


def compiled(body: Any) -> dict[str, CompiledTask]:
    """Return the routers of a pipeline, by stage, whose body is given a word."""

    @dsl.pipeline(name="outer")
    def outer(text: str = "a", names: list = ["x"]) -> None:  # type: ignore[type-arg]  # noqa: B006
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            body(text, names)

    from google.protobuf.json_format import MessageToDict

    tasks = compiled_tasks(MessageToDict(outer.pipeline_spec))
    return {needs_of(task)["needs"][0]["stage"]: task for task in tasks if task.is_router}


def needs_of(router: CompiledTask) -> Any:
    return json.loads(constant(router.inputs["needs"]))


def test_a_router_in_a_loop_is_given_its_list() -> None:
    def body(text: Any, names: Any) -> None:
        first = routed(lists, (Need(stage="begin", after=()),), RUN, word=text)
        with dsl.ParallelFor(["{{x}}", "y"], parallelism=1) as item:
            routed(echo, (Need(stage="static", items=2, after=()),), RUN, text=item)
        with dsl.ParallelFor(first.outputs["words"]) as item:
            routed(echo, (Need(stage="made", items=3, after=()),), RUN, text=item)
            with dsl.If(item == "x"):
                routed(echo, (Need(stage="within", items=3, after=()),), RUN, text=item)
        with dsl.ParallelFor(names) as item, dsl.ParallelFor([1, 2]):
            routed(echo, (Need(stage="nested", after=()),), RUN, text=item)

    routers = compiled(body)
    assert needs_of(routers["static"])["loops"] == [{"items": ["{{x}}", "y"], "at_once": 1}]
    assert "{{" not in constant(routers["static"].inputs["needs"])
    assert "items" not in routers["static"].inputs
    assert needs_of(routers["made"])["loops"] == [{}] == needs_of(routers["within"])["loops"]
    assert routers["made"].inputs["items"]["componentInputParameter"].endswith("lists-words")
    # KFP passes no list through a condition or a loop within its own loop.
    assert "items" not in routers["within"].inputs
    assert needs_of(routers["nested"])["loops"] == [{}, {"items": [1, 2]}]
    assert "items" not in routers["nested"].inputs


def nested_in(*, loop: bool) -> Any:
    @dsl.pipeline(name="nested")
    def nested(text: str) -> None:
        routed(echo, FIRST, RUN, text=text)

    @dsl.pipeline(name="outer")
    def outer(text: str = "a") -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            if loop:
                with dsl.ParallelFor(["x", "y"]) as item:
                    nested(text=item)
            else:
                nested(text=text)

    return outer


def test_a_nested_pipeline_with_a_stage_is_neither_compiled_nor_uploaded_in_a_loop(tmp_path: Path) -> None:
    sentence = r"route is a router inside for-loop-\d, and does not know of it: .* out of dsl.ParallelFor"
    with pytest.raises(UsageError, match=sentence):
        write(nested_in(loop=True), tmp_path / "looped.yaml")
    # KFP's own compiler knows nothing of it.
    compiler.Compiler().compile(nested_in(loop=True), str(tmp_path / "looped.yaml"))
    with pytest.raises(UsageError, match=sentence):
        read_pipeline(tmp_path / "looped.yaml")
    assert read_pipeline(write(nested_in(loop=False), tmp_path / "once.yaml")) == ("outer", False)


@pytest.mark.parametrize(
    ("component", "need", "sentence"),
    [
        (echo, Need(stage="first"), "in a loop of 2 items, and the stages before it hold money for 1: .*=2"),
        (echo, Need(stage="first", elastic=True, items=2), "all of its items would do the same work"),
        (ingest, INGEST, "ingest is in a dsl.ParallelFor, and all of its items would do the same work"),
    ],
)
def test_a_stage_that_a_loop_cannot_have_is_refused(component: Any, need: Need, sentence: str) -> None:
    def body(text: Any, _: Any) -> None:
        with dsl.ParallelFor(["x", "y"]) as item:
            routed(component, (need,), RUN, **({"text": item} if component is echo else {}))

    with pytest.raises(UsageError, match=sentence):
        compiled(body)


def test_a_loop_over_artifacts_is_refused_with_what_to_loop_over() -> None:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def file(name: str, made: dsl.Output[dsl.Artifact]) -> None: ...

    @dsl.pipeline(name="files")
    def files(names: list) -> list[dsl.Artifact]:  # type: ignore[type-arg]
        with dsl.ParallelFor(names) as name:
            each = file(name=name)
        return dsl.Collected(each.outputs["made"])  # type: ignore[return-value]

    def body(_: Any, names: Any) -> None:
        with dsl.ParallelFor(files(names=names).output):
            routed(echo, FIRST, RUN, text="x")

    with pytest.raises(
        UsageError, match=r"first is in a dsl\.ParallelFor over artifacts: loop over a list of"
    ):
        compiled(body)


def test_a_loop_over_a_list_that_holds_an_output_of_a_task_is_refused() -> None:
    def body(text: Any, _: Any) -> None:
        made = routed(echo, (Need(stage="begin", after=()),), RUN, text=text)
        with dsl.ParallelFor(["x", made.output]) as item:
            routed(echo, (Need(stage="work", items=2, after=()),), RUN, text=item)

    with pytest.raises(UsageError, match="over a list that holds outputs of tasks, which KFP cannot compile"):
        compiled(body)


def test_a_stage_after_a_loop_reads_its_items_or_is_refused() -> None:
    def body(text: Any, names: Any, *, reads: bool) -> None:
        with dsl.ParallelFor(names) as item:
            each = routed(echo, (Need(stage="each", items=4, after=()),), RUN, text=item)
        texts = dsl.Collected(each.output) if reads else ["a"]
        routed(join, (Need(stage="joined", after=("each",)),), RUN, texts=texts)

    router = compiled(lambda *given: body(*given, reads=True))["joined"]
    assert router.after == {"for-loop-2"}
    with pytest.raises(UsageError, match=r"after each, which is inside a dsl\.ParallelFor: .* in dsl\.Coll"):
        compiled(lambda *given: body(*given, reads=False))


@dsl.pipeline(name="looped")
def looped(recipe: str, run_id: str, world: str, word: str, budget_usd: str) -> None:
    run = RunParameters(world, run_id, recipe, budget_usd, deadline_s=0.0, seed=0)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        begin = routed(echo, stages_from(STAGES, "begin"), run, text=word)
        with dsl.ParallelFor(SECONDS) as seconds:
            each = routed(work, stages_from(STAGES, "work"), run, seconds=seconds, word=begin.output)
        routed(join, stages_from(STAGES, "joined"), run, texts=dsl.Collected(each.output))


def run_looped(
    laptop: Path, folder: Path, patch: pytest.MonkeyPatch, word: str, budget_usd: str = "0.01"
) -> LocalRun:
    return run_few(looped, laptop, folder, patch, word=word, budget_usd=budget_usd)


@pytest.mark.slow
def test_each_item_is_booked_at_its_own_time_and_its_result_is_in_the_order_of_the_list(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_looped(laptop, tmp_path, monkeypatch, "a")
    assert run.succeeded and run.summary.status == "done", run.log
    assert run.summary.not_taken == ()
    names = ["begin", *(f"work.{number}" for number in range(len(SECONDS))), "joined"]
    assert [stage.name for stage in run.story.stages] == names
    assert ", ".join(f"a {seconds}" for seconds in SECONDS) in run.log, run.log
    periods = []
    for number, seconds in enumerate(SECONDS):
        (attempt,) = (each for each in run.story.attempts if each.stage == f"work.{number}")
        receipt, choice = attempt.receipt, attempt.decision.choice
        assert receipt is not None and choice is not None
        assert receipt.seconds >= seconds
        assert receipt.spent_usd == cost_usd(choice.usd_per_hour, receipt.seconds)
        periods.append((receipt.started_at, receipt.finished_at))
    # Not to the next step: that of another item begins meanwhile.
    periods.sort()
    assert any(after[0] < before[1] for before, after in pairwise(periods)), periods
    held = {each.stage: each.decision.question.needs for each in run.story.attempts}
    assert held["begin"][1].items == 8
    assert {need.items for need in held["joined"]} == {1}
    (account,) = (each.account for each in run.story.start_accounts)
    assert account.stages["work"].spent_usd == sum(
        stage.spent_usd for stage in run.summary.stages if item_of(stage.name)
    )


@pytest.mark.slow
def test_an_item_that_fails_is_named_and_the_others_are_booked(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_looped(laptop, tmp_path, monkeypatch, "fail")
    assert not run.succeeded and run.summary.status == "failed", run.log
    failed = {each.stage: each.reason for each in run.story.attempts if each.state == "failed"}
    assert failed == dict.fromkeys(("work.2", "work.7"), "exit code 1: ValueError: 0.1 is too short")
    assert run.summary.reason in {f"{stage} failed: {reason}" for stage, reason in failed.items()}
    assert run.story.start_accounts[-1].account.reservations == {}


@pytest.mark.slow
def test_a_loop_that_the_money_is_not_enough_for_is_refused_before_its_first_item(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_looped(laptop, tmp_path, monkeypatch, "a", budget_usd="0.0003")
    assert not run.succeeded and run.summary.status == "refused", run.log
    assert run.summary.spent_usd == 0


@dsl.pipeline(name="made")
def made(recipe: str, run_id: str, world: str, word: str) -> None:
    """A list that the run makes, with a condition in its loop, and within another loop."""
    run = RunParameters(world, run_id, recipe, budget_usd="0.01", deadline_s=0.0, seed=0)
    needs = (
        Need(stage="begin", after=(), setup_s=1.0),
        *(Need(stage=name, items=2, after=("begin",), setup_s=1.0) for name in ("plain", "second", "outer")),
    )
    with dsl.ExitHandler(settle_step(run), name="spend"):
        begin = routed(lists, needs, run, word=word)
        with dsl.ParallelFor(begin.outputs["words"]) as item:
            routed(echo, stages_from(needs, "plain"), run, text=item)
            with dsl.If(begin.outputs["word"] == "b"):
                routed(echo, stages_from(needs, "second"), run, text=item)
        with dsl.ParallelFor(begin.outputs["words"]) as item, dsl.ParallelFor([0.1, 0.2]) as seconds:
            routed(work, stages_from(needs, "outer"), run, seconds=seconds, word=item)


@pytest.mark.slow
def test_items_of_lists_that_the_run_makes_are_told_apart(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_few(made, laptop, tmp_path, monkeypatch, word="a")
    assert run.succeeded and run.summary.status == "done", run.log
    assert run.summary.not_taken == ("second",)
    assert {stage.name for stage in run.summary.stages} == {
        *("begin", "plain.0", "plain.1"),
        *(f"outer.{outer}.{inner}" for outer in (0, 1) for inner in (0, 1)),
    }
    for text in ("a{{1}} 0.1", "a2 0.2"):
        assert text in run.log, run.log


@pytest.mark.slow
def test_a_list_that_has_changed_is_told_when_the_run_is_started_again(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_few(made, laptop, tmp_path, monkeypatch, word="a").succeeded
    run = run_few(made, laptop, tmp_path, monkeypatch, word="b")
    assert not run.succeeded
    assert "item 0 of plain is another than the one that r began with: the list of its loop" in run.log
