"""What whoever pays has to say to a run before it begins: the most for one run, its campaign, a named approval, the caps above it."""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core.errors import ApprovalNeeded, LedgerConflict, Refused, UnknownName, UsageError
from shoestring.core.money import usd
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run
from shoestring.spending.approvals import (
    Approval,
    ApprovalRequest,
    approval_request_key,
    read_approval_request,
    read_approvals,
    valid_approval,
    why_insufficient,
    write_approval,
)
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.entry import HashedEntry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account

MONTHS_CAP = (
    "no run can be begun this month: {}; wait, or let whoever keeps this world's budgets raise month_usd"
)
CAMPAIGNS_CAP = "no run of {} can be begun: {}; wait, or let whoever keeps this world's budgets raise the campaign's cap_usd"


def check_run_limits(world: World, budget_usd: Decimal, campaign: str) -> None:
    """May a run be given so much, and may its campaign begin a run today?

    Raises:
        Refused: no.
        UnknownName: there is no such campaign.
    """
    most_usd = world.budgets.run_usd
    if most_usd is not None and budget_usd > most_usd:
        raise Refused(
            f"a budget of ${budget_usd} is above the ${most_usd} that one run may be given here: "
            "ask for less, or let whoever keeps this world's budgets raise run_usd"
        )
    if not campaign:
        return
    if (found := world.budgets.campaigns.get(campaign)) is None:
        raise UnknownName("campaign", campaign, sorted(world.budgets.campaigns))
    today = world.clock.now().date()
    if found.first_day and today < found.first_day:
        raise Refused(f"the campaign {campaign} begins on {found.first_day}, and today is {today} (UTC)")
    if found.last_day and today > found.last_day:
        raise Refused(f"the campaign {campaign} ended on {found.last_day}, and today is {today} (UTC)")


def approval_for(
    world: World, run_id: str, budget_usd: Decimal, deadline_s: float | None, campaign: str
) -> str | None:
    """The digest of the approval that allows a run its budget; None where it needs none.

    Raises:
        ApprovalNeeded: what it asked for is written down, for `shoestring approvals` to show.
    """
    ceiling_usd, now = world.budgets.approve_above_usd, world.clock.now()
    if ceiling_usd is None or budget_usd <= ceiling_usd:
        return None
    given = read_approvals(world.store, run_id)
    if found := valid_approval(given, budget_usd, now):
        return found
    request = ApprovalRequest(
        run_id=run_id,
        budget_usd=usd(budget_usd),
        deadline_s=deadline_s,
        ceiling_usd=ceiling_usd,
        campaign=campaign,
        at=now,
    )
    world.store.put(approval_request_key(run_id), record_bytes(request))
    raise ApprovalNeeded(run_id, budget_usd, ceiling_usd, why_insufficient(given, budget_usd, now))


def set_parent_caps(world: World, ledger: Ledger, month: str, campaign: str) -> str | None:
    """Let the caps of the month and of the campaign be what the world's budgets say now; returns the campaign's account, if there is one.

    Raises:
        Refused: more than that is spent and held already.
    """
    if world.budgets.month_usd is not None:
        _cap(ledger, month, world.budgets.month_usd, MONTHS_CAP)
    if not campaign:
        return None
    account = campaign_account(campaign)
    _cap(ledger, account, world.budgets.campaigns[campaign].cap_usd, CAMPAIGNS_CAP.format(campaign, "{}"))
    return account


def parent_caps(world: World, month: str, campaign: str) -> dict[str, Decimal]:
    """By account, the caps that the world's budgets set above a run."""
    caps = {} if world.budgets.month_usd is None else {month: world.budgets.month_usd}
    return caps | (
        {campaign_account(campaign): world.budgets.campaigns[campaign].cap_usd} if campaign else {}
    )


def _cap(ledger: Ledger, account: str, cap_usd: Decimal, refused: str) -> None:
    try:
        ledger.ensure_cap(account, cap_usd)
    except LedgerConflict as error:
        raise Refused(refused.format(error)) from error


def give_approval(
    world: World, approval: Approval, account: AccountState | None, total_usd: Decimal
) -> HashedEntry | None:
    """Write an approval down. A run that is under way, with `total_usd` for all its starts, is given the difference at once.

    Raises:
        UsageError: its end has come.
        Refused: it is above what one run may be given here.
        BudgetExceeded: the month, or the campaign, has not that much left; the approval stands all the same.
    """
    if approval.expires_at <= approval.at:
        raise UsageError(
            f"an approval until {approval.expires_at:%Y-%m-%d %H:%M} UTC counts for nothing: that has passed"
        )
    check_run_limits(world, approval.amount_usd, "")
    sha256 = write_approval(world.store, approval)
    if account is None or account.closed or account.cap_usd is None or approval.amount_usd <= total_usd:
        return None
    ledger = Ledger(world.store, world.clock, str(world.pod))
    return ledger.set_cap(account.account, account.cap_usd + approval.amount_usd - total_usd, sha256)


def current_budget(world: World, run: Run) -> tuple[Decimal, AccountState | None]:
    """What all starts of a run may spend together, what was approved since included; and the account of the last, if it has one."""
    try:
        state = Ledger(world.store, world.clock).state(run.start.account)
    except UnknownName:
        return run.start.budget_usd, None
    return run.start.budget_usd + state.cap_raised_usd, state


def previous_request(world: World, run: Run) -> tuple[Decimal, float | None]:
    """The budget and the seconds that a run had, or waits for."""
    if run.starts:
        deadline_at = run.start.deadline_at
        return current_budget(world, run)[0], (
            deadline_at - run.start.started_at
        ).total_seconds() if deadline_at else None
    if request := read_approval_request(world.store, run.run_id):
        return request.budget_usd, request.deadline_s
    return run.record.recipe.budget_usd, None


def pending_approval(world: World, run_id: str) -> ApprovalRequest | None:
    """What a run waits for now; None where it waits for nothing."""
    request = read_approval_request(world.store, run_id)
    begun = any(world.store.list(f"runs/{run_id}/starts/"))
    if (
        request is None
        or begun
        or valid_approval(read_approvals(world.store, run_id), request.budget_usd, world.clock.now())
    ):
        return None
    return request
