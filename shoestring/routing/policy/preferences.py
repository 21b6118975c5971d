"""What a policy file prefers, and what it keeps a stage off. Pure, like all of routing.

The kind of a stage's work, where its need does not name it:
    compute   it may do its rows on a GPU, or takes COMPUTE_OP_PER_ROW operations a row or more, over all its passes
    memory    else, if it takes MEMORY_GB or more
    data      else: what it does beside reading and writing is little
An hour of waiting has a price: plans are compared by dollars + usd_per_hour_of_waiting x expected hours, money is reserved without it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from shoestring.config.policy import ANY_PLACEMENT, Preferences, WorkloadClass
from shoestring.core.money import microusd
from shoestring.core.types import Market, Need, Pool, WorkKind
from shoestring.routing.decision import Reason

COMPUTE_OP_PER_ROW = 10_000.0
"""Ten microseconds of a reference core: some ten times what reading a row takes."""

MEMORY_GB = 16.0
"""More than what machines of balanced shape have for four cores."""


def kind_of(need: Need, memory_gb: float) -> WorkKind:
    """The tier that a stage belongs to, by the rule at the module's head. `memory_gb`: what it takes on its rows."""
    if need.kind is not None:
        return need.kind
    if need.gpu == "must" or need.gpu_flop_per_row > 0 or need.op_per_row * need.passes >= COMPUTE_OP_PER_ROW:
        return "compute"
    return "memory" if memory_gb >= MEMORY_GB else "data"


def waiting_micro_per_hour(preferences: Preferences, kind: WorkKind) -> int:
    """What an hour less of this kind of work is worth, in micro-dollars."""
    own = preferences.tier(kind).usd_per_hour_of_waiting
    return microusd(preferences.usd_per_hour_of_waiting if own is None else own)


def kept_off(tier: WorkloadClass, pool: Pool, market: Market) -> Reason | None:
    """What of a tier keeps its work off a pool on a market; None: nothing."""
    if tier is ANY_PLACEMENT:
        return None
    if tier.markets is not None and market not in tier.markets:
        return Reason.MARKET
    if tier.pools is not None and not (
        _matches(pool.name, tier.pools) or _matches(pool.node_pool or "", tier.pools)
    ):
        return Reason.POOL
    if tier.hardware != "any" and (tier.hardware == "gpu") != (pool.gpu_count > 0):
        return Reason.HARDWARE
    if tier.gpus is not None and pool.gpu_count and not _matches(pool.gpu or "", tier.gpus):
        return Reason.GPU_TYPE
    terms = pool.markets.get(market)
    if (
        tier.most_preemptions_per_hour is not None
        and terms
        and terms.preemptions_per_hour > tier.most_preemptions_per_hour
    ):
        return Reason.PREEMPTIONS
    return None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def objected(code: Reason, preferences: Preferences, kind: WorkKind, pool: Pool, market: Market) -> str:
    """The sentence of a refusal by `kept_off`."""
    tier, by = preferences.tier(kind), f"policy {preferences.title} keeps {kind}-heavy work"
    match code:
        case Reason.MARKET:
            return f"{by} to {_either(tier.markets)}, this is {market}"
        case Reason.POOL:
            return f"{by} to pools like {_either(tier.pools)}, this is {pool.name}"
        case Reason.HARDWARE:
            has = f"has {pool.gpu_count}" if pool.gpu_count else "has none"
            return f"{by} {'on' if tier.hardware == 'gpu' else 'off'} machines with GPUs, {pool.name} {has}"
        case Reason.GPU_TYPE:
            return f"{by} to GPUs like {_either(tier.gpus)}, {pool.name} has {pool.gpu or 'one of no known type'}"
        case _:
            rate, most = pool.markets[market].preemptions_per_hour, tier.most_preemptions_per_hour
            return f"{by} off what is taken away more than {most:g} times an hour, {pool.name} {market} is {rate:g} times"


def _either(names: tuple[str, ...] | None) -> str:
    return " or ".join(names or ())


BY_POLICY = frozenset({Reason.MARKET, Reason.POOL, Reason.HARDWARE, Reason.GPU_TYPE, Reason.PREEMPTIONS})
"""What a policy file alone objects to: another one may not."""
