"""What a policy file prefers, and what it keeps a stage off. Pure, like all of routing.

The kind of a stage's work, where its need does not name it:
    compute   it may do its rows on a GPU, or takes COMPUTE_US_PER_ROW microseconds a row or more, over all its passes
    memory    else, if it takes MEMORY_GB or more
    data      else: what it does beside reading and writing is little
An hour of waiting has a price: plans are compared by dollars + delay_usd_per_hour x expected hours, money is reserved without it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from shoestring.config.policy import ANY_PLACEMENT, Preferences, WorkloadClass
from shoestring.core.money import microusd
from shoestring.core.types import Market, Need, Pool, WorkloadKind
from shoestring.routing.candidates import RefusalCode

COMPUTE_US_PER_ROW = 10.0
"""Ten microseconds of a reference core: some ten times what reading a row takes."""

MEMORY_GB = 16.0
"""More than what machines of balanced shape have for four cores."""


def kind_of(need: Need, memory_gb: float) -> WorkloadKind:
    """The workload_class that a stage belongs to, by the rule at the module's head. `memory_gb`: what it takes on its rows."""
    if need.workload is not None:
        return need.workload
    if need.gpu == "must" or need.gpu_flop_per_row > 0 or need.cpu_us_per_row * need.passes >= COMPUTE_US_PER_ROW:
        return "compute"
    return "memory" if memory_gb >= MEMORY_GB else "data"


def delay_microusd_per_hour(preferences: Preferences, kind: WorkloadKind) -> int:
    """What an hour less of this kind of work is worth, in micro-dollars."""
    own = preferences.workload_class(kind).delay_usd_per_hour
    return microusd(preferences.delay_usd_per_hour if own is None else own)


def kept_off(workload_class: WorkloadClass, pool: Pool, market: Market) -> RefusalCode | None:
    """What of a workload_class keeps its work off a pool on a market; None: nothing."""
    if workload_class is ANY_PLACEMENT:
        return None
    if workload_class.markets is not None and market not in workload_class.markets:
        return RefusalCode.MARKET_NOT_ALLOWED
    if workload_class.pools is not None and not (
        _matches(pool.name, workload_class.pools) or _matches(pool.node_pool or "", workload_class.pools)
    ):
        return RefusalCode.POOL_NOT_ALLOWED
    if workload_class.hardware != "any" and (workload_class.hardware == "gpu") != (pool.gpu_count > 0):
        return RefusalCode.HARDWARE_NOT_ALLOWED
    if (
        workload_class.gpus is not None
        and pool.gpu_count
        and not _matches(pool.gpu or "", workload_class.gpus)
    ):
        return RefusalCode.GPU_TYPE_NOT_ALLOWED
    terms = pool.markets.get(market)
    if (
        workload_class.max_preemptions_per_hour is not None
        and terms
        and terms.preemptions_per_hour > workload_class.max_preemptions_per_hour
    ):
        return RefusalCode.PREEMPTION_RATE_NOT_ALLOWED
    return None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def objected(code: RefusalCode, preferences: Preferences, kind: WorkloadKind, pool: Pool, market: Market) -> str:
    """The sentence of a refusal by `kept_off`."""
    workload_class, by = (
        preferences.workload_class(kind),
        f"policy {preferences.title} keeps {kind}-heavy work",
    )
    match code:
        case RefusalCode.MARKET_NOT_ALLOWED:
            return f"{by} to {_either(workload_class.markets)}, this is {market}"
        case RefusalCode.POOL_NOT_ALLOWED:
            return f"{by} to pools like {_either(workload_class.pools)}, this is {pool.name}"
        case RefusalCode.HARDWARE_NOT_ALLOWED:
            has = f"has {pool.gpu_count}" if pool.gpu_count else "has none"
            return f"{by} {'on' if workload_class.hardware == 'gpu' else 'off'} machines with GPUs, {pool.name} {has}"
        case RefusalCode.GPU_TYPE_NOT_ALLOWED:
            return f"{by} to GPUs like {_either(workload_class.gpus)}, {pool.name} has {pool.gpu or 'one of no known type'}"
        case _:
            rate, most = pool.markets[market].preemptions_per_hour, workload_class.max_preemptions_per_hour
            return f"{by} off what is taken away more than {most:g} times an hour, {pool.name} {market} is {rate:g} times"


def _either(names: tuple[str, ...] | None) -> str:
    return " or ".join(names or ())


BY_POLICY = frozenset({RefusalCode.MARKET_NOT_ALLOWED, RefusalCode.POOL_NOT_ALLOWED, RefusalCode.HARDWARE_NOT_ALLOWED, RefusalCode.GPU_TYPE_NOT_ALLOWED, RefusalCode.PREEMPTION_RATE_NOT_ALLOWED})
"""What a policy file alone objects to: another one may not."""
