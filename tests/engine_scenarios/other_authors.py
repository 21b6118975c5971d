"""Components of another author, which nothing in their pods meters, and commands with a meter."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from engine_scenarios.books import (
    CENT_OF_A_CENT,
    accounts,
    check_books,
    check_dollars,
    decision,
    pod_usd,
    receipts,
    wait_for_decision,
)
from engine_scenarios.engine import Engine, Job, Pipeline, StartedRun
from engine_scenarios.jobs import TOO_SMALL, require
from engine_scenarios.own_package import AUTHORED, strangers_pipeline
from engine_scenarios.recipes import RAIN, write_recipe

from shoestring.backends.kubernetes.pod_lifetime import ENDED_ANNOTATION

STAGE, READER = "theirs", "reader"
LITTLE_USD = Decimal("0.0001")
COMMANDS = ("begins", "counts", "ends")
"""The stages of the pipeline of commands; the second has a meter."""
SOME_USD = Decimal("0.0002")
"""What the metered command may spend beyond the least: about half a minute."""
# A look of the reaper, its request, the grace period of a pod on Kubeflow, and whole seconds.
END_S = 45


def good_component(engine: Engine, package: Path) -> None:
    """It is settled by its pod's times, another one reads its output, and the run is done."""
    run = engine.start(Job(write_recipe(engine.scratch, RAIN, "good.yaml"), strangers_pipeline("good")))
    check_both_settled(engine, run)


def component_with_artifacts(engine: Engine, package: Path) -> None:
    """Another one reads its artifact, which the engine stores; both are settled by their pods' times."""
    require(engine, "artifacts")
    recipe = write_recipe(engine.scratch, RAIN, "artifacts.yaml")
    check_both_settled(engine, engine.start(Job(recipe, strangers_pipeline("artifacts"))))


def check_both_settled(engine: Engine, run: StartedRun) -> None:
    summary = run.wait().done()
    assert {stage.name: stage.attempts for stage in summary.stages} == {"ingest": 1, STAGE: 1, READER: 1}
    check_dollars(engine, run, "ingest", STAGE, READER)
    check_books(engine, run.run_id)


def broken_component(engine: Engine, package: Path) -> None:
    """It fails its run, is not run again, and is paid for by its pod's times."""
    run = engine.start(Job(write_recipe(engine.scratch, RAIN, "broken.yaml"), strangers_pipeline("broken")))
    summary = run.wait().not_done()
    assert (summary.status, engine.state(run.engine_id)) == ("failed", "failed")
    (receipt,) = receipts(engine, run.run_id, STAGE)
    assert (receipt.status, len(engine.pods(run, STAGE))) == ("failed", 1)
    check_dollars(engine, run, "ingest", STAGE)
    check_books(engine, run.run_id)


def endless_component(engine: Engine, package: Path) -> None:
    """The reaper extends it as far as its account lets it, and ends it when the money is used up."""
    recipe, pipeline = write_recipe(engine.scratch, RAIN, "endless.yaml"), strangers_pipeline("endless")
    refused = engine.start(Job(recipe, pipeline, TOO_SMALL)).wait().not_done()
    assert refused.smallest_budget_usd is not None
    budget_usd = refused.smallest_budget_usd + LITTLE_USD
    run = engine.start(Job(recipe, pipeline, str(budget_usd)))
    choice = wait_for_decision(engine, run.run_id, STAGE).choice
    summary = run.wait().not_done()
    assert choice is not None and summary.status == "failed"
    (pod,), (receipt,) = engine.pods(run, STAGE), receipts(engine, run.run_id, STAGE)
    assert pod["metadata"]["annotations"][ENDED_ANNOTATION].startswith("OutOfMoney: it cost $")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert (receipt.status, receipt.cause) == ("failed", "money")
    assert receipt.spent_usd > choice.p95_usd
    assert summary.spent_usd <= budget_usd
    assert receipt.overrun_usd <= choice.usd_per_hour * END_S / 3600
    # The exit step may run before the cluster tells when the pod's containers ended, and charges until then.
    beyond_usd = receipt.spent_usd + receipt.overrun_usd - pod_usd(engine, receipt, pod)
    assert 0 <= beyond_usd <= choice.usd_per_hour * END_S / 3600
    check_dollars(engine, run, "ingest")
    check_books(engine, run.run_id)


def commands(engine: Engine, package: Path) -> None:
    """A command with a meter stops by itself at the end of its budget, and its output is passed on."""
    pipeline = Pipeline("commanded:commands", AUTHORED, "scenario-commands")
    refused = engine.start(Job("", pipeline, TOO_SMALL)).wait().not_done()
    assert refused.smallest_budget_usd is not None
    budget_usd = refused.smallest_budget_usd + SOME_USD
    run = engine.start(Job("", pipeline, str(budget_usd)))
    summary = run.wait().done()
    assert {stage.name: stage.attempts for stage in summary.stages} == dict.fromkeys(COMMANDS, 1)
    first, metered, last = (receipts(engine, run.run_id, stage)[0] for stage in COMMANDS)
    assert [each.status for each in (first, metered, last)] == ["done"] * 3
    assert metered.outcome is not None and metered.outcome.samples > 3
    assert metered.outcome.stop_reason == "it stopped by itself when its budget was used up"
    assert summary.quality["number"] == metered.outcome.samples
    assert metered.spent_usd <= metered.budget_usd and summary.spent_usd <= budget_usd
    assert engine.state(run.engine_id) == "succeeded"
    listed = engine.read("runs", "--name", "scenario-commands", "--status", "done").out
    assert run.run_id in listed
    check_dollars(engine, run, *COMMANDS)
    check_books(engine, run.run_id)


def conditions(engine: Engine, package: Path) -> None:
    """The branches that are not taken cost nothing, the next stage reads the one that is, and the run is
    done.
    """
    check_branches(engine, "pipeline", "scenario-conditions")


def own_exit_step(engine: Engine, package: Path) -> None:
    """Their author's own exit step reads the status of all that was routed, which is settled before."""
    require(engine, "own exit steps")
    check_branches(engine, "notified", "scenario-own-exit-step")


def check_branches(engine: Engine, pipeline: str, name: str) -> None:
    run = engine.start(Job("", Pipeline(f"conditional:{pipeline}", AUTHORED, name)))
    summary = run.wait().done()
    assert sorted(summary.not_taken) == ["large", "never"], summary
    assert {stage.name for stage in summary.stages} == {"first", "small", "last"}
    assert engine.state(run.engine_id) == "succeeded"
    check_dollars(engine, run, "first", "small", "last")
    check_books(engine, run.run_id)


def loops(engine: Engine, package: Path) -> None:
    """Each item of a loop is booked at its own pod's time; the stage after it reads all results in order."""
    run = engine.start(Job("", Pipeline("looped:pipeline", AUTHORED, "scenario-loops")))
    summary = run.wait().done()
    items = [f"item.{number}" for number in range(8)]
    assert {stage.name for stage in summary.stages} == {"lists", *items, "last"}
    for item in items:
        (pod,), (receipt,) = engine.pods(run, item), receipts(engine, run.run_id, item)
        assert abs(receipt.spent_usd - pod_usd(engine, receipt, pod)) <= CENT_OF_A_CENT, receipt
        # The money of all items was held before the first ran.
        question = decision(engine, run.run_id, item).question
        assert sum(need.items for need in question.needs if "item" in need.stage) <= len(items)
    assert decision(engine, run.run_id, "lists").question.needs[1].items == len(items)
    (account,) = accounts(engine, run.run_id)
    spent_usd = sum((receipts(engine, run.run_id, item)[0].spent_usd for item in items), Decimal(0))
    assert Decimal(account["stages"]["item"]["spent_usd"]) == spent_usd
    check_dollars(engine, run, "lists", "last")
    check_books(engine, run.run_id)


def equipped(engine: Engine, package: Path) -> None:
    """A command with a meter and a component without one get the secret, the config map, the volumes, the
    labels and the annotations that their author gives them.
    """
    name, place = "scenario-equipped", engine.place
    place.kubectl("delete", "secret,configmap", name, "--ignore-not-found")
    place.kubectl("create", "secret", "generic", name, "--from-literal=token=hidden")
    place.kubectl("create", "configmap", name, "--from-literal=mode=fast")
    run = engine.start(Job("", Pipeline("equipped:pipeline", AUTHORED, name)))
    run.wait().done()
    for stage in ("metered", "theirs"):
        (pod,) = engine.pods(run, stage)
        assert pod["metadata"]["labels"]["team"] == "vision"
        assert pod["metadata"]["annotations"]["example.com/owner"] == "vision"
    check_books(engine, run.run_id)
    place.kubectl("delete", "secret,configmap", name)
