"""The limits that the budget owner sets on a run: per-run maximum, campaign, named approval, and the caps of
parent accounts.
"""

from __future__ import annotations

from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ApprovalNeeded, LedgerConflict, Refused, UnknownName, UsageError
from shoestring.core.money import usd
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, open_run, read_run_record
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.approvals import (
    Approval,
    ApprovalRequest,
    insufficiency_reason,
    read_approval_request,
    read_approvals,
    valid_approval,
    write_approval,
)
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.entry import HashedEntry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account


def check_run_limits(world: World, budget_usd: Decimal, campaign: str) -> None:
    """Check that one run may have this budget, and that its campaign is open today.

    Raises:
        Refused: the budget is too large, or the campaign is not open.
        UnknownName: there is no such campaign.
    """
    max_usd = world.budgets.run_usd
    if max_usd is not None and budget_usd > max_usd:
        raise Refused(
            f"a budget of ${budget_usd} is above the ${max_usd} that one run may have here: "
            "lower it, or have the budget owner raise run_usd"
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
    """Return the digest of the approval that allows the run its budget; None where the budget needs none.

    Raises:
        ApprovalNeeded: there is no such approval. The request is stored, and `shoestring approvals` lists it.
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
        approve_above_usd=ceiling_usd,
        campaign=campaign,
        requested_at=now,
    )
    world.store.put(store_layout.approval_request(run_id), record_bytes(request))
    resume = read_run_record(world.store, run_id).resume_text
    why = insufficiency_reason(given, budget_usd, now)
    raise ApprovalNeeded(run_id, budget_usd, ceiling_usd, resume, why)


def set_parent_caps(world: World, ledger: Ledger, month: str, campaign: str) -> str | None:
    """Set the caps of the month's and the campaign's accounts to those of the world's budgets.

    Returns the campaign's account; None without a campaign.

    Raises:
        Refused: an account has more spent and held than its new cap.
    """
    if world.budgets.month_usd is not None:
        _set_cap(ledger, month, world.budgets.month_usd, "no run can start this month", "month_usd")
    if not campaign:
        return None
    account, cap_usd = campaign_account(campaign), world.budgets.campaigns[campaign].cap_usd
    _set_cap(ledger, account, cap_usd, f"no run of {campaign} can start", "the campaign's cap_usd")
    return account


def _set_cap(ledger: Ledger, account: str, cap_usd: Decimal, refusal: str, setting: str) -> None:
    try:
        ledger.ensure_cap(account, cap_usd)
    except LedgerConflict as error:
        raise Refused(f"{refusal}: {error}; wait, or have the budget owner raise {setting}") from error


def parent_caps(world: World, month: str, campaign: str) -> dict[str, Decimal]:
    """Return the caps, by account, that the world's budgets set on a run's month and campaign."""
    caps = {} if world.budgets.month_usd is None else {month: world.budgets.month_usd}
    return caps | (
        {campaign_account(campaign): world.budgets.campaigns[campaign].cap_usd} if campaign else {}
    )


def give_approval(
    world: World, approval: Approval, account: AccountState | None, total_usd: Decimal
) -> HashedEntry | None:
    """Store an approval, and raise the cap of a run that is under way at once.

    Args:
        account: the account of the run's last start; None: the run has none.
        total_usd: what all starts of the run may spend so far; the cap rises by what the approval allows
            above it.

    Raises:
        UsageError: the approval has expired.
        Refused: its amount is above what one run may have here.
        BudgetExceeded: the month or the campaign has too little left. The approval is stored all the same.
    """
    if approval.expires_at <= approval.approved_at:
        raise UsageError(
            f"an approval until {approval.expires_at:%Y-%m-%d %H:%M} UTC is useless: that time has passed"
        )
    check_run_limits(world, approval.amount_usd, "")
    sha256 = write_approval(world.store, approval)
    if account is None or account.closed or account.cap_usd is None or approval.amount_usd <= total_usd:
        return None
    ledger = world_ledger(world)
    return ledger.set_cap(account.account, account.cap_usd + approval.amount_usd - total_usd, sha256)


def current_budget(world: World, run: Run) -> tuple[Decimal, AccountState | None]:
    """Return what all starts of a run may spend, later approvals included; and the last start's account, if
    it has one.
    """
    try:
        state = world_ledger(world).state(run.start.account)
    except UnknownName:
        return run.start.budget_usd, None
    return run.start.budget_usd + state.cap_raised_usd, state


def previous_request(world: World, run: Run) -> tuple[Decimal, float | None]:
    """Return the budget in dollars and the deadline in seconds that a run had, or that it requested an
    approval for.
    """
    if run.starts:
        start, budget_usd = run.start, current_budget(world, run)[0]
        if start.deadline_at is None:
            return budget_usd, None
        return budget_usd, (start.deadline_at - start.started_at).total_seconds()
    if request := read_approval_request(world.store, run.run_id):
        return request.budget_usd, request.deadline_s
    return run.record.job.budget_usd, None


def open_request(world: World, run_id: str) -> ApprovalRequest | None:
    """Return the request for the next start of a run; None: it has made none since its last start."""
    request = read_approval_request(world.store, run_id)
    starts = open_run(world.store, run_id).starts if request else ()
    return None if request and starts and starts[-1].started_at > request.requested_at else request


def check_not_ended(run: Run, account: AccountState | None, request: ApprovalRequest | None) -> None:
    """Raise Refused if there is nothing to approve: the run has ended, and no further start is requested."""
    if account is not None and account.closed and request is None:
        raise Refused(
            f"{run.run_id} has ended, and an approval adds nothing to it: "
            f"`{run.record.resume_text} --budget AMOUNT` resumes it, and requests an approval if it needs one"
        )


def pending_approval(world: World, run_id: str) -> ApprovalRequest | None:
    """Return the approval request that blocks a run; None: none does."""
    request = open_request(world, run_id)
    if request is None:
        return None
    given = read_approvals(world.store, run_id)
    return None if valid_approval(given, request.budget_usd, world.clock.now()) else request
