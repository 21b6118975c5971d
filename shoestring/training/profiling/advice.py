"""The advice of a profile: by what was tried, else by Amdahl's law with the shares of its operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from shoestring.training.profiling.profile import Advice, Lever, Operator, OperatorKind, Trial, WeightStep

LEAST_GAIN = 1.05
"""Less is not worth a change."""

BF16_FACTOR = 2.0
"""Tensor cores multiply bf16 at twice the rate of TF32 (NVIDIA's data sheets)."""

FUSED_SHARE = 0.5
"""Of the time of pointwise operators: one that is fused with the one before it does not read its input."""

IDLE_DEVICE = 0.7
"""A device that computes for a smaller share of a step waits for the host."""

ODD_UPDATE = 30.0
"""A weight is badly conditioned whose relative update is this many times that of the median, or less than
that part of it."""


def advised(
    operators: Sequence[Operator],
    trials: Iterable[Trial],
    loading_share: float,
    device_share: float | None,
    is_bf16_possible: bool,
) -> tuple[Advice, ...]:
    """Return the changes that pay, the largest gain first. `device_share`: of a step, the part in which a
    device of its own computes; None: there is none."""
    tried = list(trials)
    found = [_measured(each) for each in _best(tried)]
    known = {each.lever for each in tried}
    text = f"{loading_share:.0%} of a step waits for its rows: load them in more workers, or stored decoded"
    estimates: list[tuple[Lever, float, str]] = [("loading", _saved(loading_share), text)]
    share = _share(operators, "layout")
    text = f"{share:.0%} of a step copies tensors, most of it in {_first(operators)}"
    estimates.append(("layout", _saved(share), text))
    if device_share is not None:
        # On cores, compiling costs more than it gains.
        share = _share(operators, "pointwise")
        text = f"{share:.0%} of a step are pointwise operators, which torch.compile fuses"
        estimates.append(("fusion", _saved(FUSED_SHARE * share), text))
    if is_bf16_possible:
        share = _share(operators, "product")
        text = f"{share:.0%} of a step multiplies matrices in float32: torch.autocast with bfloat16"
        estimates.append(("precision", _saved(share * (1 - 1 / BF16_FACTOR)), text))
    if device_share is not None and device_share < IDLE_DEVICE:
        text = f"the GPU computes for {device_share:.0%} of a step, and waits for the host: a larger batch"
        estimates.append(("batch", _saved(1 - device_share), text))
    found += [
        Advice(lever=lever, gain=round(gain, 3), is_measured=False, text=text)
        for lever, gain, text in estimates
        if lever not in known and gain >= LEAST_GAIN
    ]
    return tuple(sorted(found, key=lambda each: -each.gain))


def badly_conditioned(weights: Sequence[WeightStep]) -> tuple[WeightStep, ...]:
    """Return the matrices whose relative update is far from that of the others, and all weights without a
    gradient. A bias that begins at zero has no size to compare its update with."""
    updates = [each.relative_update for each in weights if each.is_matrix and each.update_norm > 0]
    usual = median(updates) if updates else 0.0
    found = []
    for each in weights:
        times = each.relative_update / usual if usual and each.is_matrix and each.norm else 1.0
        if not each.gradient_norm or not 1 / ODD_UPDATE <= times <= ODD_UPDATE:
            found.append(each.model_copy(update={"times_median": times}))
    return tuple(found)


def _best(trials: Iterable[Trial]) -> list[Trial]:
    """Return the best trial of each lever, where it pays."""
    best = dict[str, Trial]()
    for each in trials:
        if each.gain >= max(LEAST_GAIN, best[each.lever].gain if each.lever in best else 0.0):
            best[each.lever] = each
    return list(best.values())


def _measured(trial: Trial) -> Advice:
    text = f"{trial.setting}: {trial.rows_per_s:,.0f} rows/s"
    return Advice(lever=trial.lever, gain=trial.gain, is_measured=True, text=text)


def _share(operators: Iterable[Operator], kind: OperatorKind) -> float:
    return sum(each.share for each in operators if each.kind == kind)


def _first(operators: Iterable[Operator]) -> str:
    """Return the names of the two operators that copy the longest."""
    return " and ".join([each.name for each in operators if each.kind == "layout"][:2])


def _saved(share: float) -> float:
    """Return the gain of a step without a share of its time."""
    return 1 / max(0.01, 1 - share)
