"""`shoestring policy ...`: what places are chosen by, and how a policy on trial does beside the one in force."""

from __future__ import annotations

import json
from typing import Any

import typer

from shoestring.cli.running import JsonOption, StoreOption, WorldOption, world_at
from shoestring.config.policy import CandidatePolicy, Policy, Preferences
from shoestring.core.types import utc_text
from shoestring.routing.analysis.off_policy import Comparison, Estimate
from shoestring.routing.policy.trials import Rollback
from shoestring.runtime.records.policy_trial import Trial, rolled_back, trials

app = typer.Typer(help="Policies: the one in force, and one on trial beside it.", no_args_is_help=True)


@app.command()
def show(world: WorldOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Print the policy in force, and the candidate with what became of it."""
    opened = world_at(world, store)
    rules = opened.policy
    over = rolled_back(opened.store, rules.candidate) if rules.candidate else None
    if as_json:
        told: dict[str, Any] = {"policy": rules.model_dump(mode="json"), "sha256": rules.sha256}
        told |= {"candidate_sha256": rules.candidate.policy.sha256 if rules.candidate else None}
        typer.echo(json.dumps(told | {"rollback": over.model_dump(mode="json") if over else None}, indent=1))
        return
    for line in (
        *described("policy", rules),
        *guarded(rules),
        *(on_trial(rules.candidate, over) if rules.candidate else ["no candidate"]),
    ):
        typer.echo(line)
    for note in opened.notes:
        typer.echo(note, err=True)


def guarded(rules: Policy) -> list[str]:
    """What no stage may pass, in lines, and what a training may change of itself."""
    said = [f"  {sentence}" for sentence in rules.guardrails.sentences(trains=True)] or ["  no guardrails"]
    bounds = rules.adaptation_limits.model_dump(mode="json")
    return [
        *said,
        f"  a training may change by itself: {', '.join(f'{name} {value}' for name, value in bounds.items())}",
    ]


def described(what: str, policy: Preferences) -> list[str]:
    """A policy in lines."""
    lines = [
        f"{what} {policy.title} ({policy.sha256[:12]}): an hour of waiting is worth ${policy.delay_usd_per_hour}"
    ]
    for kind, workload_class in sorted(policy.workload_classes.items()):
        said = workload_class.model_dump(mode="json", exclude_defaults=True)
        allowed = [
            f"{name} {', '.join(value) if isinstance(value, list) else value}" for name, value in said.items()
        ]
        lines.append(f"  {kind}-heavy work: {'; '.join(allowed) or 'anywhere'}")
    return lines


def on_trial(candidate: CandidatePolicy, over: Rollback | None) -> list[str]:
    share = (
        f"obeyed by {candidate.share:.0%} of the runs" if candidate.share else "in shadow: nobody obeys it"
    )
    state = f"rolled back on {utc_text(over.at)}: {over.why}" if over else share
    return [*described("candidate", candidate.policy), f"  {state}"]


@app.command()
def compare(world: WorldOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Estimate what each candidate would have cost, from the choices that were logged beside it."""
    opened = world_at(world, store)
    found, notes = trials(opened.store)
    if as_json:
        typer.echo(json.dumps([trial.model_dump(mode="json") for trial in found], indent=1))
        return
    for line in (line for trial in found for line in compared(trial)):
        typer.echo(line)
    if not found:
        typer.echo(
            "no decision of this store was made with a candidate beside it: name one in the policy, as `candidate`"
        )
    for note in notes:
        typer.echo(note, err=True)


def compared(trial: Trial) -> list[str]:
    """What there is to say of one candidate, in lines."""
    lines = [f"candidate {trial.policy} ({trial.sha256[:12]})"]
    if trial.rollback:
        lines.append(f"  rolled back on {utc_text(trial.rollback.at)}: {trial.rollback.why}")
    if trial.comparison is None:
        return [*lines, "  no run that it was beside is over yet"]
    return lines + [f"  {line}" for line in estimates(trial.comparison)]


def estimates(found: Comparison) -> list[str]:
    weighed = found.candidate_by_propensity
    by_propensity = dollars(weighed) if weighed else "none: some of its choices were nobody's to make"
    model_alone = (
        f"; for {found.unseen} of them only its expectation speaks, since no run could have obeyed it"
        if found.unseen
        else ""
    )
    return [
        f"{found.runs} runs, {found.candidate_runs} of them with choices of its own; {found.choices} choices, {found.different} different"
        + model_alone,
        f"policy in force     {dollars(found.live)}",
        f"candidate           {dollars(found.candidate)}",
        f"  by propensity     {by_propensity}",
        f"candidate is dearer {dollars(found.more)}",
    ]


def dollars(found: Estimate) -> str:
    mean = f"{found.usd_per_run:+.6f}" if found.usd_per_run < 0 else f"{found.usd_per_run:.6f}"
    within = (
        "too few runs for an interval"
        if found.low_usd is None
        else f"95% within {found.low_usd:.6f} and {found.high_usd:.6f}"
    )
    return f"${mean} a run ({within})"
