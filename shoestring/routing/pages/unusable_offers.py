"""Why a stage cannot run on a pool and market at any budget, as a sentence."""

from __future__ import annotations

from shoestring.core.record import utc_text
from shoestring.core.text import join_names
from shoestring.core.types import Market, Need, NodeCapacity, Pool
from shoestring.routing.candidates import POLICY_CODES, RefusalCode
from shoestring.routing.question import Question

UNSCHEDULABLE = "cordoned, not ready, or tainted by the cluster"


def unusable(code: RefusalCode, question: Question, need: Need, pool: Pool, market: Market) -> str:
    """Return why a stage cannot run on a pool and market at any budget."""
    node_pool = pool.node_pool or pool.name
    match code:
        case RefusalCode.TOO_LITTLE_MEMORY:
            return f"needs {question.memory_gb(need):.2f} GB of memory, {pool.name} has {pool.memory_gb:g}"
        case RefusalCode.NO_GPU:
            return f"needs a GPU of known speed, {pool.name} has none"
        case RefusalCode.TOO_LITTLE_GPU_MEMORY:
            return f"needs {need.gpu_memory_gb:g} GB of GPU memory, {pool.name} has {pool.gpu_memory_gb:g}"
        case RefusalCode.MARKET_NOT_DECLARED:
            return (
                f"{pool.name} has a price for {market}, but does not declare it: add {market} to its markets"
            )
        case RefusalCode.STOCK_OUT:
            stockout = question.stockout(pool, market)
            return f"excluded until {utc_text(stockout.until)}: {stockout.reason}" if stockout else ""
        case RefusalCode.POD_ELSEWHERE:
            pod = question.existing_pod
            return f"its pod exists already, on {pod.pool} {pod.market}" if pod else ""
        case RefusalCode.NO_CAPACITY:
            return no_capacity(pool, pool.capacity)
        case RefusalCode.NO_PRICE:
            rows = (row for row in question.rejected_prices if row.row.startswith(f"{node_pool} {market} $"))
            reasons = "; ".join(row.reason for row in rows)
            return (
                f"no accepted price: {reasons}" if reasons else f"no accepted price for {pool.name} {market}"
            )
        case _ if code in POLICY_CODES.values():
            return not_allowed(code, question, need, pool, market)
        case _:
            raise ValueError(f"{code} does not make an offer unusable")


def not_allowed(code: RefusalCode, question: Question, need: Need, pool: Pool, market: Market) -> str:
    """Return why the policy excludes a pool and market for a stage."""
    rules, kind = question.workload_class(need), question.workload_kind(need)
    policy = f"policy {question.active_policy.title} allows {kind}-heavy work"
    match code:
        case RefusalCode.MARKET_NOT_ALLOWED:
            return f"{policy} only on {' or '.join(rules.markets or ())}, this is {market}"
        case RefusalCode.POOL_NOT_ALLOWED:
            return f"{policy} only on pools like {' or '.join(rules.pools or ())}, this is {pool.name}"
        case RefusalCode.HARDWARE_NOT_ALLOWED:
            where = "only on machines with" if rules.hardware == "gpu" else "only on machines without"
            return f"{policy} {where} GPUs, {pool.name} has {pool.gpu_count or 'none'}"
        case RefusalCode.GPU_TYPE_NOT_ALLOWED:
            gpu = pool.gpu or "one of unknown type"
            return f"{policy} only on GPUs like {' or '.join(rules.gpus or ())}, {pool.name} has {gpu}"
        case _:
            rate, maximum = pool.markets[market].preemptions_per_hour, rules.max_preemptions_per_hour
            where = f"only where it is preempted at most {maximum:g} times an hour"
            return f"{policy} {where}, on {pool.name} {market} it is {rate:g} times"


def no_capacity(pool: Pool, capacity: NodeCapacity | None) -> str:
    """Return what the node with the most free capacity has, and what a pod of this pool requests."""
    node_pool = pool.node_pool or pool.name
    if capacity is None or not capacity.nodes:
        return f"no capacity: {node_pool} has no nodes, and no autoscaler adds one"
    several = capacity.nodes > 1
    if capacity.unschedulable >= capacity.nodes:
        nodes = (
            f"the {capacity.nodes} nodes of {node_pool} take" if several else f"the node of {node_pool} takes"
        )
        return f"no capacity: {nodes} no pods: {UNSCHEDULABLE}"
    free = [f"{capacity.free_cores:g} cores", f"{capacity.free_memory_gb:g} GB"]
    requested = [f"{pool.cores} core{'s' if pool.cores > 1 else ''}", f"{pool.memory_gb:g} GB"]
    if pool.gpu_count:
        free, requested = [f"{capacity.free_gpus} GPUs", *free], ["1 GPU", *requested]
    pods, closed = capacity.pending_pods, capacity.unschedulable
    node = f"the emptiest of {capacity.nodes} nodes of {node_pool}" if several else f"the node of {node_pool}"
    pending = f"; {pods} pod{'s are' if pods > 1 else ' is'} already pending" if pods else ""
    tainted = (
        f"; {closed} node{'s take' if closed > 1 else ' takes'} no pods: {UNSCHEDULABLE}" if closed else ""
    )
    needed = f"{join_names(free)} free, a pod requests {join_names(requested)}"
    return f"no capacity: {node} has {needed}{pending}{tainted}"
