"""The usage caps among the policy's guardrails, checked while a stage runs. The supervisor carries out and
records each action.

The guardrails on the cost of an epoch and on quality are checked by the training itself
(`training/control/controller.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import psutil

from shoestring.config.guardrails import CAPS, UNITS, UsageCap
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.receipt import AdaptationChange, Receipt, ResourceUsage
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.spending.energy import resource_usage

# The share of a cap with the action `throttle` at which half of the cores are taken away.
THROTTLE_AT = 0.8
# The predicted time of a cap is updated when it has changed by this share of the time left. Each update
# changes the learning rate, so small ones are skipped.
UPDATE_SHARE = 0.05

HalveCores = Callable[[], "tuple[int, int] | None"]
"""Takes away half of a stage's cores; returns their number before and after, None where it cannot."""


def check_guardrails(attempt: Attempt, pid: int) -> None:
    """Compare the usage of process `pid` with each cap, and take its action."""
    check_caps(attempt, partial(halve_cores, pid))


def check_caps(attempt: Attempt, halve_cores: HalveCores) -> None:
    """Compare the attempt's usage with each cap, and take its action. A stage that is stopping is left
    alone.
    """
    attempt.usage = attempt_usage(attempt)
    for name in CAPS:
        cap: UsageCap | None = getattr(attempt.world.policy.guardrails, name)
        if cap is None or attempt.stop_reason:
            continue
        now = used_amount(name, attempt.usage, attempt)
        before = 0.0 if name == "memory_gb" else used_amount(name, attempt.usage_before, attempt)
        if before + now >= cap.max:
            stop_at_cap(attempt, name, cap, before + now)
        elif cap.action == "throttle" and before + now >= THROTTLE_AT * cap.max:
            throttle(attempt, halve_cores, name, cap, before + now)
        elif cap.action == "rebalance" and name != "memory_gb":
            shorten_deadline(attempt, name, cap, before, now)


def used_amount(name: str, usage: ResourceUsage, attempt: Attempt) -> float:
    """Return how much of a capped resource is used, in the unit of its cap."""
    return attempt.peak_rss_bytes / 1e9 if name == "memory_gb" else getattr(usage, name) or 0.0


def attempt_usage(attempt: Attempt) -> ResourceUsage:
    """Return this attempt's usage so far."""
    pool, grids = attempt.pool, attempt.world.policy.carbon_grids
    # A region without a grid of its own counts as the grid with the most carbon.
    grid = grids.get(pool.region) or max(grids.values(), key=lambda each: each.g_per_kwh, default=None)
    seconds = max(0.0, attempt.world.clock.monotonic_s() - attempt.started_s)
    g_per_kwh = grid.g_per_kwh if grid else None
    return resource_usage(pool, seconds, attempt.cpu_s, g_per_kwh, attempt.gpu_usage.joules)


def earlier_usage(store: Store, run_id: str, stage: str) -> ResourceUsage:
    """Return the usage of the stage's earlier attempts in this run, from their receipts."""
    receipts = [read_record(store, key, Receipt) for key in store.list(store_layout.receipts(run_id, stage))]
    return total_usage(receipt.usage for receipt in receipts if receipt.stage == stage)


def total_usage(usages: Iterable[ResourceUsage]) -> ResourceUsage:
    """Return the sum. An unknown mass of CO2 counts as 0."""
    total = ResourceUsage()
    for each in usages:
        total = ResourceUsage(
            joules=total.joules + each.joules,
            core_minutes=total.core_minutes + each.core_minutes,
            co2_g=(total.co2_g or 0.0) + (each.co2_g or 0.0),
        )
    return total


def usage_text(name: str, cap: UsageCap, used: float) -> str:
    return f"guardrail {name}: {used:,.3g} of {cap.max:,.3g} {UNITS[name]} used"


def stop_at_cap(attempt: Attempt, name: str, cap: UsageCap, used: float) -> None:
    """Stop the attempt. Its cause makes the engine retry it with more memory, retry it unchanged, or not at
    all.
    """
    reason = f"{usage_text(name, cap, used)}, and its action is {cap.action}"
    if name == "memory_gb" and cap.action == "rebalance":
        attempt.stop(f"{reason}: the next attempt gets more memory", "memory")
    elif cap.action == "pause":
        attempt.stop(f"{reason}: the next attempt continues from its checkpoint", "stop-requested")
    else:
        attempt.stop(reason, "guardrail")
    record_change(attempt, "running", "stopped", reason)


def throttle(attempt: Attempt, halve_cores: HalveCores, name: str, cap: UsageCap, used: float) -> None:
    """Take away half of the cores, once. Where that is not possible, the attempt stops at the cap."""
    if attempt.throttled:
        return
    attempt.throttled = True
    if (halved := halve_cores()) is not None:
        reason = f"{usage_text(name, cap, used)}, and its action is throttle"
        record_change(attempt, f"{halved[0]} cores", f"{halved[1]}", reason)


def halve_cores(pid: int) -> tuple[int, int] | None:
    """Take half of its cores from a process; return their number before and after.

    None: it has one core or has ended, or the system cannot pin processes.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        cores = sorted(os.sched_getaffinity(pid))
        left = cores[: max(1, len(cores) // 2)]
        if len(left) == len(cores):
            return None
        for thread in psutil.Process(pid).threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, left)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None
    return len(cores), len(left)


def shorten_deadline(attempt: Attempt, name: str, cap: UsageCap, before: float, now: float) -> None:
    """Make the time at which an elastic stage will reach the cap its deadline."""
    now_s = attempt.world.clock.monotonic_s()
    ran_s = now_s - attempt.started_s
    if not attempt.elastic or now <= 0 or ran_s <= 0:
        return
    per_s = now / ran_s
    left_s = (cap.max - before - now) / per_s
    known_s = attempt.cap_times_s.get(name)
    if known_s is not None and abs(now_s + left_s - known_s) <= UPDATE_SHARE * left_s:
        return
    attempt.cap_times_s[name] = now_s + left_s
    # If money or time ends the stage earlier, the cap changes nothing, so there is nothing to record.
    if known_s is None and attempt.meter().ends_s == now_s + left_s:
        record_change(
            attempt,
            "the money and the time",
            f"{left_s:,.0f} s from now",
            f"{usage_text(name, cap, before + now)}, {per_s:,.3g} more per second, "
            "and its action is rebalance",
        )


def record_change(attempt: Attempt, before: str, after: str, reason: str) -> None:
    attempt.guardrail_changes += (
        AdaptationChange(
            at=attempt.world.clock.now(),
            samples=attempt.progress.samples,
            lever="guardrail",
            before=before,
            after=after,
            reason=reason,
        ),
    )
