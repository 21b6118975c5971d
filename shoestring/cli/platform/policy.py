"""`shoestring policy ...`: the policy in force, and a candidate policy on trial."""

from __future__ import annotations

import json
from typing import Any

import typer

from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.policy import Policy
from shoestring.config.preferences import CandidatePolicy, Preferences
from shoestring.core.record import utc_text
from shoestring.routing.analysis.off_policy import CostEstimate, PolicyComparison
from shoestring.routing.policy.policy_trial import Rollback
from shoestring.runtime.records.policy_trial import PolicyTrial, policy_trials, rollback_of

app = typer.Typer(help="The policy in force, and a candidate policy on trial.", no_args_is_help=True)


@app.command()
@takes_world
def show(source: WorldSource = DEFAULT_WORLD, as_json: JsonOption = False) -> None:
    """Print the policy in force, and the candidate policy with its state."""
    opened = source.open()
    policy = opened.policy
    rollback = rollback_of(opened.store, policy.candidate) if policy.candidate else None
    if as_json:
        dumped: dict[str, Any] = {"policy": policy.model_dump(mode="json"), "sha256": policy.sha256}
        dumped |= {"candidate_sha256": policy.candidate.policy.sha256 if policy.candidate else None}
        typer.echo(
            json.dumps(
                dumped | {"rollback": rollback.model_dump(mode="json") if rollback else None}, indent=1
            )
        )
        return
    for line in (
        *policy_lines("policy", policy),
        *guardrail_lines(policy),
        *(candidate_lines(policy.candidate, rollback) if policy.candidate else ["no candidate"]),
    ):
        typer.echo(line)
    for note in opened.notes:
        typer.echo(note, err=True)


def guardrail_lines(policy: Policy) -> list[str]:
    """Return the limits that no stage may pass, and what a training may adapt by itself."""
    lines = [f"  {sentence}" for sentence in policy.guardrails.sentences(trains=True)] or ["  no guardrails"]
    limits = policy.adaptation_limits.model_dump(mode="json")
    return [
        *lines,
        f"  a training may adapt by itself: {', '.join(f'{name} {value}' for name, value in limits.items())}",
    ]


def policy_lines(what: str, policy: Preferences) -> list[str]:
    """Return a policy as lines of text."""
    lines = [
        f"{what} {policy.title} ({policy.sha256[:12]}): an hour of delay costs ${policy.delay_usd_per_hour}"
    ]
    for kind, workload_class in sorted(policy.workload_classes.items()):
        settings = workload_class.model_dump(mode="json", exclude_defaults=True)
        allowed = [
            f"{name} {', '.join(value) if isinstance(value, list) else value}"
            for name, value in settings.items()
        ]
        lines.append(f"  {kind}-heavy work: {'; '.join(allowed) or 'anywhere'}")
    return lines


def candidate_lines(candidate: CandidatePolicy, rollback: Rollback | None) -> list[str]:
    share = (
        f"followed by {candidate.share:.0%} of the runs"
        if candidate.share
        else "shadow mode: no run follows it"
    )
    state = f"rolled back on {utc_text(rollback.at)}: {rollback.reason}" if rollback else share
    return [*policy_lines("candidate", candidate.policy), f"  {state}"]


@app.command()
@takes_world
def compare(source: WorldSource = DEFAULT_WORLD, as_json: JsonOption = False) -> None:
    """Estimate what each candidate policy would have cost.

    Estimates follow from the choices that it logged.
    """
    opened = source.open()
    found, notes = policy_trials(opened.store)
    if as_json:
        typer.echo(json.dumps([trial.model_dump(mode="json") for trial in found], indent=1))
        return
    for line in (line for trial in found for line in trial_lines(trial)):
        typer.echo(line)
    if not found:
        typer.echo(
            "no decision in this store was made while a candidate policy was on trial: name one in the "
            "policy, "
            "as `candidate`"
        )
    for note in notes:
        typer.echo(note, err=True)


def trial_lines(trial: PolicyTrial) -> list[str]:
    """Return the results of one candidate as lines of text."""
    lines = [f"candidate {trial.policy} ({trial.sha256[:12]})"]
    if trial.rollback:
        lines.append(f"  rolled back on {utc_text(trial.rollback.at)}: {trial.rollback.reason}")
    if trial.comparison is None:
        return [*lines, "  no run with this candidate has ended yet"]
    return lines + [f"  {line}" for line in comparison_lines(trial.comparison)]


def comparison_lines(found: PolicyComparison) -> list[str]:
    weighed = found.candidate_by_propensity
    by_propensity = estimate_text(weighed) if weighed else "none: no run could have made some of its choices"
    model_alone = (
        f"; {found.unobservable} of them are estimated by the model alone, since no run could follow them"
        if found.unobservable
        else ""
    )
    return [
        f"{found.runs} runs, {found.candidate_runs} of them with choices of the candidate; "
        f"{found.choices} choices, {found.different_choices} different" + model_alone,
        f"policy in force      {estimate_text(found.live)}",
        f"candidate            {estimate_text(found.candidate)}",
        f"  by propensity      {by_propensity}",
        f"candidate difference {estimate_text(found.difference)}",
    ]


def estimate_text(found: CostEstimate) -> str:
    mean = f"{found.usd_per_run:+.6f}" if found.usd_per_run < 0 else f"{found.usd_per_run:.6f}"
    within = (
        "too few runs for an interval"
        if found.low_usd is None
        else f"95% interval {found.low_usd:.6f} to {found.high_usd:.6f}"
    )
    return f"${mean} per run ({within})"
