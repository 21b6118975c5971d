"""When a run may start: its data exists, the policy does not delay it, and the parent accounts have the
money.

While a run waits here, no account is opened and nothing is reserved or paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from shoestring.config.policy import Priority, StartPolicy
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, NotYet, Refused, UnknownName
from shoestring.core.money import usd
from shoestring.core.record import record_bytes, utc_text
from shoestring.data.job import Command, Task
from shoestring.data.run_records import AdmissionRefusal, Run, RunStart
from shoestring.routing.decision import Choice, Decision, reserved_later_s
from shoestring.routing.policy.start_time import MIN_WAIT_S, choose_start_time
from shoestring.runtime.admission.approvals import parent_caps, set_parent_caps
from shoestring.spending.ledger.ledger import Ledger


def check_data(world: World, task: Task, waited_s: float) -> None:
    """Raise NotYet if a file or folder of the recipe is missing and the run may wait longer."""
    if isinstance(task, Command):
        return
    policy, now = world.policy.start, world.clock.now()
    paths = [source.path for source in task.source.values() if source.path]
    missing = [str(path) for path in paths if not path.exists()]
    if missing and (until := next_check(policy, now, policy.max_delay_s - waited_s)):
        raise NotYet(
            f"not before {utc_text(until)}: its data does not exist yet: {', '.join(missing)}", until
        )


def next_check(policy: StartPolicy, now: datetime, left_s: float) -> datetime | None:
    """Return when a waiting run is checked again; None: no waiting time is left."""
    return now + timedelta(seconds=min(policy.poll_s, left_s)) if left_s >= MIN_WAIT_S else None


def slack_s(decision: Decision, choice: Choice) -> float | None:
    """Return how many seconds later the run may start and still meet its deadline at P95.

    None: it has no deadline.
    """
    left_s = decision.question.deadline_left_s
    return None if left_s is None else left_s - choice.p95_s - reserved_later_s(decision)


def check_start_time(
    world: World, decision: Decision, choice: Choice, priority: Priority, waited_s: float
) -> None:
    """Raise NotYet if the policy delays a run like this one."""
    question, plan = decision.question, decision.plan
    capacity = question.pool(choice.pool).capacity
    start = choose_start_time(
        world.clock.now(),
        world.policy.start,
        priority,
        est_usd=float(choice.est_usd + sum(later.est_usd for later in plan)),
        est_s=choice.est_s + sum(later.est_s for later in plan),
        spare_s=slack_s(decision, choice),
        queue=capacity.pending_pods if capacity else 0,
        delay_usd_per_hour=float(question.active_policy.delay_usd_per_hour),
        waited_s=waited_s,
    )
    if start.not_before is not None:
        raise NotYet(start.sentence, start.not_before, urgently=True)


def max_wait_s(world: World, decision: Decision, choice: Choice, waited_s: float) -> float:
    """Return how many seconds longer the policy and the deadline let a run wait."""
    slack, left_s = slack_s(decision, choice), world.policy.start.max_delay_s - waited_s
    return left_s if slack is None else min(left_s, slack)


def check_caps(
    world: World, ledger: Ledger, needed_usd: Decimal, caps: dict[str, Decimal], left_s: float
) -> None:
    """Raise NotYet if a parent account lacks the money until running runs release theirs.

    Args:
        needed_usd: what the run needs from each account.
        caps: the caps by account.
        left_s: how long the policy and the deadline let the run wait. High priority does not shorten this
            wait.
    """
    until = next_check(world.policy.start, world.clock.now(), left_s)
    if until is None:
        return
    for account, cap_usd in caps.items():
        try:
            state = ledger.state(account)
        except UnknownName:
            continue
        left_usd = cap_usd - state.spent_usd - state.held_usd
        if left_usd < needed_usd <= left_usd + state.held_usd:
            free_usd = usd(max(Decimal(0), left_usd))
            raise NotYet(
                f"not before {utc_text(until)}: "
                f"${usd(needed_usd)} requested, ${free_usd} left of ${cap_usd} in {account}; "
                f"running runs hold ${state.held_usd} and release what they do not use",
                until,
            )


@dataclass(frozen=True, slots=True)
class Headroom:
    """The money that a start takes from its parent accounts, and how long it may wait for it."""

    cap_usd: Decimal
    campaign: str
    max_wait_s: float

    def check(self, world: World, ledger: Ledger, month: str = "") -> None:
        """Raise NotYet if waiting may help. `month` is that of the start; empty: now."""
        caps = parent_caps(world, month or f"{world.clock.now():%Y-%m}", self.campaign)
        check_caps(world, ledger, self.cap_usd, caps, self.max_wait_s)

    def open_account(
        self,
        world: World,
        ledger: Ledger,
        start: RunStart,
        stage_caps: dict[str, Decimal],
        approval: str | None = None,
    ) -> None:
        """Open the start's account.

        Raises:
            BudgetExceeded: a parent account lacks the money.
            NotYet: it lacks the money now, but may have it later.
        """
        month = f"{start.started_at:%Y-%m}"
        campaign = set_parent_caps(world, ledger, month, self.campaign)
        try:
            ledger.open(
                start.account,
                self.cap_usd,
                parent=month,
                stage_caps=stage_caps,
                campaign=campaign,
                approval=approval,
                approve_above_usd=world.budgets.approve_above_usd,
            )
        except BudgetExceeded:
            self.check(world, ledger, month)
            raise


def start_when_allowed(
    world: World,
    run_id: str,
    begin: Callable[[float], Run],
    max_s: float,
    report: Callable[[str], object],
) -> Run:
    """Start a run as soon as it is allowed to start.

    Args:
        begin: starts the run; it receives the seconds waited so far.
        max_s: the longest wait.
        report: receives the reason of each wait.

    Raises:
        NotYet: the run may start only after `max_s`.
        Refused: this and every other refusal is also stored with the run, for later readers.
    """
    try:
        return _wait_and_begin(world, begin, max_s, report)
    except Refused as error:
        # A run that has no record yet is unknown, so its refusal is not stored.
        if any(world.store.list(store_layout.run_record(run_id))):
            refusal = AdmissionRefusal(refused_at=world.clock.now(), reason=str(error))
            world.store.put(store_layout.refusal(run_id), record_bytes(refusal))
        raise


def _wait_and_begin(
    world: World, begin: Callable[[float], Run], max_s: float, report: Callable[[str], object]
) -> Run:
    began_s, waited_s = world.clock.monotonic_s(), 0.0
    while True:
        try:
            return begin(waited_s)
        except NotYet as error:
            wait_s = (error.until - world.clock.now()).total_seconds()
            if wait_s > max_s - waited_s:
                raise
            report(error.sentence)
            world.clock.sleep(max(wait_s, MIN_WAIT_S))
            waited_s = world.clock.monotonic_s() - began_s
