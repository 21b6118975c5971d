"""Codes and numbers as sentences: the one place where routing speaks. Money comes in whole micro-dollars, time in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.core.record import utc_text
from shoestring.core.types import STANDARD_CLASS, Format, Market, Need, NodeCapacity, Pool, StockOut
from shoestring.routing.candidates import RefusalCode
from shoestring.routing.question import Question
from shoestring.routing.offers.factors import stage_memory_gb, stockout
from shoestring.routing.policy.preferences import BY_POLICY, delay_microusd_per_hour, kind_of, objected

CLOSED = "cordoned, not ready, or tainted by the cluster"


def dollars(micro: int) -> str:
    whole, rest = divmod(abs(micro), 1_000_000)
    return f"{'-' if micro < 0 else ''}${whole}.{rest:06d}"


def seconds(ms: int) -> str:
    return f"{ms / 1000:,.1f} s"


def lying(written: Format | None, storage_class: str) -> str:
    """ "parquet", "parquet on STANDARD_IA"; empty: no data set."""
    return "" if written is None else f"{written} on {storage_class}" if storage_class != STANDARD_CLASS else str(written)


def offer(pool: str, market: Market, writes: Format | None, storage_class: str = STANDARD_CLASS) -> str:
    return f"{pool} {market}" + (f" writing {lying(writes, storage_class)}" if writes else "")


def priced(est_micro: int, p95_micro: int) -> str:
    return f"{dollars(est_micro)} expected (P95 {dollars(p95_micro)})"


def later_stages(question: Question) -> str:
    """The stages after this one, as words: "train and evaluate"."""
    return listed([need.stage for need in question.needs[1:]])


def waiting(question: Question) -> str:
    """Words where plans are compared by more than money; none where an hour of waiting is worth nothing."""
    of_needs = (
        delay_microusd_per_hour(question.active_policy, kind_of(need, stage_memory_gb(need, question.rows)))
        for need in question.needs
    )
    prices = [dollars(micro) for micro in dict.fromkeys(of_needs) if micro]
    return f", waiting counted at {' or '.join(prices)} an hour" if prices else ""


def unusable(code: RefusalCode, question: Question, need: Need, pool: Pool, market: Market) -> str:
    """Why a stage cannot run on a pool at any budget."""
    if code in BY_POLICY:
        return objected(code, question.active_policy, kind_of(need, stage_memory_gb(need, question.rows)), pool, market)
    match code:
        case RefusalCode.TOO_LITTLE_MEMORY:
            return (
                f"needs {stage_memory_gb(need, question.rows):.2f} GB of memory, {pool.name} has {pool.memory_gb:g}"
            )
        case RefusalCode.NO_GPU:
            return f"needs a GPU whose speed is known, {pool.name} has none"
        case RefusalCode.TOO_LITTLE_GPU_MEMORY:
            return f"needs {need.gpu_memory_gb:g} GB of GPU memory, {pool.name} has {pool.gpu_memory_gb:g}"
        case RefusalCode.MARKET_NOT_DECLARED:
            return f"{pool.name} has a price for {market}, but does not say how to ask for it: add {market} to its markets"
        case RefusalCode.STOCK_OUT:
            return stocked_out(stockout(question, pool, market))
        case RefusalCode.NO_CAPACITY:
            return no_room(pool, pool.capacity)
        case _:
            doubts = [
                row.reason
                for row in question.rejected_prices
                if row.row.startswith(f"{pool.node_pool or pool.name} {market} $")
            ]
            return f"no price that can be believed{': ' if doubts else f' for {pool.name} {market}'}{'; '.join(doubts)}"


def stocked_out(found: StockOut | None) -> str:
    return f"left out until {utc_text(found.until)}: {found.reason}" if found else ""


def no_room(pool: Pool, room: NodeCapacity | None) -> str:
    """What the emptiest node has, and what a pod of this pool asks for."""
    if room is None or not room.nodes:
        return f"no room: {pool.node_pool or pool.name} has no nodes, and nothing that would add one"
    node = f"{pool.node_pool or pool.name}'s {f'{room.nodes} nodes' if room.nodes > 1 else 'one node'}"
    if room.unschedulable >= room.nodes:
        return f"no room: {f'none of {node}' if room.nodes > 1 else node} takes {'' if room.nodes > 1 else 'no '}pods: {CLOSED}"
    free = [f"{room.free_cores:g} cores", f"{room.free_memory_gb:g} GB"]
    asked = [f"{pool.cores} core{'s' if pool.cores > 1 else ''}", f"{pool.memory_gb:g} GB"]
    if pool.gpu_count:
        free, asked = [f"{room.free_gpus} GPUs", *free], ["1 GPU", *asked]
    waiting = (
        f"; {room.pending_pods} pod{'s wait' if room.pending_pods > 1 else ' waits'} there already"
        if room.pending_pods
        else ""
    )
    emptiest = f"the emptiest of {node}" if room.nodes > 1 else node
    closed = f"; {room.unschedulable} of them takes no pods: {CLOSED}" if room.unschedulable else ""
    return f"no room: {emptiest} has {listed(free)} free, {listed(asked)} are asked{waiting}{closed}"


def listed(names: Sequence[str]) -> str:
    """ "ingest, train and evaluate"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def over_stage_budget(est_micro: int, p95_micro: int, cap_micro: int) -> str:
    return f"{priced(est_micro, p95_micro)}, the stage's own budget is {dollars(cap_micro)}"


def over_budget(est_micro: int, p95_micro: int, left_micro: int, keep_micro: int, later: str) -> str:
    more = f" and {dollars(keep_micro)} needed for {later}" if keep_micro else ""
    left = (
        f"{dollars(left_micro)} left"
        if left_micro >= 0
        else f"nothing left: {dollars(-left_micro)} more than the budget is taken"
    )
    return f"{priced(est_micro, p95_micro)}, {left}{more}"


def over_deadline(needs_ms: int, left_ms: int, shortest_ms: int | None, later: str) -> str:
    would_do = f"; the shortest that would do is {seconds(shortest_ms)}" if shortest_ms is not None else ""
    return f"{seconds(needs_ms)} at P95{f' with {later}' if later else ''}, {seconds(max(left_ms, 0))} left{would_do}"


def over_either(money: str, time: str) -> str:
    return f"fits the money or the time, not both: {money}; {time}"


def could_not_follow(stage: str, why: str) -> str:
    return f"{stage} could not follow: {why}"


def late_beside(beside_ms: int, left_ms: int) -> str:
    """Where what does not wait for this stage is late, whatever this one does."""
    return f"the stages that do not wait for it take {seconds(beside_ms)} at P95, {seconds(max(left_ms, 0))} left"


def not_all(optimality_gap_ppm: int | None) -> str:
    """Where stages branch in more ways than are looked at."""
    if optimality_gap_ppm is None:
        return "not every way in which its stages branch: it is not known that none of the others would have fitted"
    return f"not every way in which its stages branch: this one is within {optimality_gap_ppm / 1e4:.2f}% of the best possible"


def fewer_samples(samples: int, fewer: int) -> str:
    return f"{samples:,} samples expected, {fewer:,} fewer"


def dearer(est_micro: int, p95_micro: int, dearer_micro: int, later: str, waits: str = "") -> str:
    return f"{priced(est_micro, p95_micro)}, {dollars(dearer_micro)} dearer{f' with {later}' if later else ''}{waits}"


def as_good(est_micro: int, p95_micro: int) -> str:
    return f"{priced(est_micro, p95_micro)}: as good, and comes later by P95 or by name"


def chosen_cached() -> str:
    return "the result is there already: nothing is computed and nothing is paid"


def chosen_cheapest(total_micro: int, later: str, runner_up: str, waits: str = "") -> str:
    return f"the least expected cost{f' with {later}' if later else ''}{waits}: {dollars(total_micro)}{runner_up}"


def finding_out(worth_micro: int) -> str:
    """Words where a choice was made for what it teaches."""
    return f", {dollars(worth_micro)} taken off for finding out how fast it is here"


def chosen_most_samples(samples: int, most: int, money_micro: int, ms: int, won_by: str) -> str:
    within = f"{dollars(money_micro)} and {seconds(ms)}"
    if samples == most:
        return f"all {most:,} samples fit in {within}, here at the least cost{won_by}"
    return f"the most samples that {within} buy: {samples:,} of {most:,}{won_by}"


def next_is_fewer(name: str, fewer: int) -> str:
    return f"; next is {name}, {fewer:,} fewer"


def next_is_dearer(name: str, dearer_micro: int) -> str:
    return f"; next is {name}, {dollars(dearer_micro)} dearer" if dearer_micro else f"; {name} is as good"
