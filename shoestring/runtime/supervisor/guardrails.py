"""The caps among the policy's guardrails, looked at while a stage runs: each has its action, which is done and said.

What an epoch costs, and how good it was, a training looks at itself (`training/rails.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil

from shoestring.config.guardrails import CAPS, UNITS, UsageCap
from shoestring.core.interfaces import Store
from shoestring.core.receipt import AdaptationChange, Receipt, ResourceUsage
from shoestring.core.types import Pool
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.energy import resource_usage

# Of a cap that is throttled: from here on with half of the cores.
THROTTLE_AT = 0.8
# A moment at which a cap will be reached is said anew when it has moved by so much of what was left: the learning rate follows it.
UPDATE_SHARE = 0.05


def check_guardrails(attempt: Attempt, pid: int) -> None:
    """Once a second. What is done is a change on record; a stage that is stopping already is left alone."""
    attempt.usage = attempt_usage(attempt)
    for name in CAPS:
        guardrail: UsageCap | None = getattr(attempt.world.policy.guardrails, name)
        if guardrail is None or attempt.stop_reason:
            continue
        now = used_amount(name, attempt.usage, attempt)
        before = 0.0 if name == "memory_gb" else used_amount(name, attempt.usage_before, attempt)
        if before + now >= guardrail.max:
            stop_at_cap(attempt, name, guardrail, before + now)
        elif guardrail.action == "throttle" and before + now >= THROTTLE_AT * guardrail.max:
            throttle(attempt, pid, name, guardrail, before + now)
        elif guardrail.action == "rebalance" and name != "memory_gb":
            shorten_deadline(attempt, name, guardrail, before, now)


def used_amount(name: str, of: ResourceUsage, attempt: Attempt) -> float:
    return attempt.peak_rss_bytes / 1e9 if name == "memory_gb" else getattr(of, name) or 0.0


def attempt_usage(attempt: Attempt) -> ResourceUsage:
    """Of this attempt, until now."""
    pool, grids = pool_of(attempt), attempt.world.policy.carbon_grids
    # A region that is not named is taken for the dirtiest that is.
    grid = grids.get(pool.region) or max(grids.values(), key=lambda each: each.g_per_kwh, default=None)
    seconds = max(0.0, attempt.world.clock.monotonic_s() - attempt.started_s)
    return resource_usage(pool, seconds, attempt.cpu_s, grid.g_per_kwh if grid else None, attempt.gpu_usage.joules)


def pool_of(attempt: Attempt) -> Pool:
    return next(pool for pool in attempt.decision.question.pools if pool.name == attempt.choice.pool)


def earlier_usage(store: Store, run_id: str, stage: str) -> ResourceUsage:
    """By the stage's earlier attempts in this run, as their receipts say."""
    receipts = [read_record(store, key, Receipt) for key in store.list(f"runs/{run_id}/receipts/{stage}-")]
    return total_usage(receipt.usage for receipt in receipts if receipt.stage == stage)


def total_usage(several: Iterable[ResourceUsage]) -> ResourceUsage:
    total = ResourceUsage()
    for each in several:
        total = ResourceUsage(
            joules=total.joules + each.joules,
            core_minutes=total.core_minutes + each.core_minutes,
            co2_g=(total.co2_g or 0.0) + (each.co2_g or 0.0),
        )
    return total


def stop_at_cap(attempt: Attempt, name: str, guardrail: UsageCap, now: float) -> None:
    said = f"guardrail {name}: {now:,.3g} of {guardrail.max:,.3g} {UNITS[name]} are used, and its action is {guardrail.action}"
    if name == "memory_gb" and guardrail.action == "rebalance":
        attempt.stop(f"{said}: it is placed anew with more", "memory")
    elif guardrail.action == "pause":
        attempt.stop(f"{said}: the next try goes on from its checkpoint", "stop-requested")
    else:
        attempt.stop(said, "guardrail")
    record_change(attempt, "running", "stopped", said)


def throttle(attempt: Attempt, pid: int, name: str, guardrail: UsageCap, now: float) -> None:
    """Half of its cores, once. One core, or a system that pins nothing, has nothing to give: then it is stopped at the cap."""
    if attempt.throttled or not hasattr(os, "sched_setaffinity"):
        return
    attempt.throttled = True
    cores = sorted(os.sched_getaffinity(pid))
    kept = cores[: max(1, len(cores) // 2)]
    if len(kept) == len(cores):
        return
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, kept)
    said = f"guardrail {name}: {now:,.3g} of {guardrail.max:,.3g} {UNITS[name]} are used, and its action is throttle"
    record_change(attempt, f"{len(cores)} cores", f"{len(kept)}", said)


def shorten_deadline(attempt: Attempt, name: str, guardrail: UsageCap, before: float, now: float) -> None:
    """Give a training the moment at which the cap will be reached for its deadline."""
    now_s = attempt.world.clock.monotonic_s()
    ran_s = now_s - attempt.started_s
    if not attempt.decision.question.needs[0].elastic or now <= 0 or ran_s <= 0:
        return
    left_s = (guardrail.max - before - now) / (now / ran_s)
    known = attempt.cap_times_s.get(name)
    if known is not None and abs(now_s + left_s - known) <= UPDATE_SHARE * left_s:
        return
    attempt.cap_times_s[name] = now_s + left_s
    meter = attempt.meter()
    # What ends it before, in money or time, is what it goes by; then there is nothing to say.
    if known is None and meter.ends_s == now_s + left_s:
        said = f"guardrail {name}: {before + now:,.3g} of {guardrail.max:,.3g} {UNITS[name]} are used, {now / ran_s:,.3g} more a second"
        record_change(
            attempt,
            "the money and the time",
            f"{left_s:,.0f} s from now",
            f"{said}, and its action is rebalance",
        )


def record_change(attempt: Attempt, before: str, after: str, why: str) -> None:
    at = attempt.world.clock.now()
    attempt.guardrail_changes += (
        AdaptationChange(
            at=at, samples=attempt.progress.samples, lever="guardrail", before=before, after=after, reason=why
        ),
    )
