"""The profile of a loop: its phases, its limit, and its advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
import torch
from torch import nn

from shoestring.training.frameworks.torch_.profiling.operators import TorchTools, kind_of_operator
from shoestring.training.profiling.advice import advised, badly_conditioned
from shoestring.training.profiling.loop_profile import (
    MOST_ACCUMULATED,
    PROFILED_STEPS,
    PROFILER_S,
    TIMED_STEPS,
    TRIED_STEPS,
    WARM_STEPS,
    LoopProfile,
    OperatorTime,
    Setting,
)
from shoestring.training.profiling.profile import (
    DeviceMemory,
    Operator,
    OperatorKind,
    Profile,
    Trial,
    WeightStep,
)

MM = OperatorTime("mm", "product", 1, 0.03, 0.0, 500)
SILU = OperatorTime("silu", "pointwise", 1, 0.01, 0.0, 1_000)


@dataclass
class Steps:
    """A loop whose steps of 32 rows take a time that a test gives, and what its profile asks for."""

    step_s: float = 0.1
    loading_s: float = 0.0
    between_s: float = 0.0
    batches_a_step: int = 1
    operators: tuple[OperatorTime, ...] = (MM, SILU)
    framework: str = "none"
    device: str = "cpu"
    would_use_bf16: bool = False
    device_memory: DeviceMemory | None = None
    now_s: float = 0.0
    rows: int = 32
    asked: list[str] = field(default_factory=list)

    def wait(self) -> None:
        self.asked.append("wait")

    def start(self) -> None:
        self.asked.append("start")

    def stop(self) -> list[OperatorTime]:
        self.asked.append("stop")
        self.now_s += 0.2
        # A step has several operators of one name.
        return [*self.operators, *self.operators]

    def watch_weights(self) -> None:
        self.asked.append("watch")

    def weights(self) -> list[WeightStep]:
        if self.asked.count("watch") % self.batches_a_step:
            return []
        return [WeightStep(name="w", is_matrix=True, gradient_norm=1.0, norm=1.0, update_norm=1e-3)]

    def threads(self) -> int:
        return 2

    def memory(self) -> DeviceMemory | None:
        return self.device_memory

    def profiled(self, limit_s: float, settings: Sequence[Setting] = (), steps: int = 200) -> Profile | None:
        """Return the profile after some steps."""
        found = LoopProfile(self, limit_s, Decimal("0.36"), settings, lambda: self.now_s)
        for _ in range(steps):
            if found.profile is not None:
                break
            found.begin_step(self.rows, self.loading_s)
            self.now_s += self.step_s - self.loading_s
            found.end_step()
            self.now_s += self.between_s
        return found.profile


def setting(steps: Steps, name: str, step_s: float, rows: int = 32) -> Setting:
    """Return a setting with which a step takes another time."""
    before = steps.step_s, steps.rows

    def apply() -> None:
        steps.step_s, steps.rows = step_s, rows

    def undo() -> None:
        steps.step_s, steps.rows = before

    return Setting("batch", name, apply, undo)


def test_a_profile_has_the_pace_without_the_profiler_and_the_operators_with_it() -> None:
    found = Steps(loading_s=0.02).profiled(limit_s=10)
    assert found is not None
    assert (found.rows, found.step_s, found.loading_share) == (32, 0.1, 0.2)
    first, second = found.operators
    assert (first.name, first.seconds, first.share, first.calls) == ("mm", 0.06, 0.6, 2.0)
    # 0.06 s for 32 rows at $0.36 an hour, which are $0.0001 a second.
    assert first.usd == Decimal("0.1875") and second.bytes == 2_000
    assert found.rows_per_s == 320 and found.host_s == 0.08


def test_only_what_profiling_takes_beyond_the_steps_counts() -> None:
    steps = Steps()
    found = steps.profiled(limit_s=10)
    assert found is not None and found.profile_s == pytest.approx(3 * 0.2, abs=1e-6)
    assert steps.asked == ["wait", "wait", *["start", "stop"] * 3, "watch"]


def test_the_weights_are_those_of_the_first_step_of_an_optimizer() -> None:
    steps = Steps(batches_a_step=4)
    found = steps.profiled(limit_s=10)
    assert found is not None and found.badly_conditioned == ()
    assert steps.asked.count("watch") == 4
    never = Steps(batches_a_step=10**6)
    assert never.profiled(limit_s=10) is not None and never.asked.count("watch") == MOST_ACCUMULATED


def test_the_profile_leaves_out_what_its_limit_has_no_time_for() -> None:
    least_s = PROFILER_S + PROFILED_STEPS * 0.1
    steps = Steps()
    found = steps.profiled(limit_s=0.99 * least_s, settings=(setting(steps, "64 rows", 0.1, 64),))
    assert found is not None and "start" not in steps.asked
    assert found.left_out == ("operators", "batch (64 rows)")
    assert found.operators == () and found.trials == () and found.profile_s == 0
    assert Steps().profiled(limit_s=least_s) is not None


def test_settings_are_tried_one_at_a_time_and_taken_back() -> None:
    steps = Steps()
    settings = (setting(steps, "64 rows", 0.125, 64), setting(steps, "128 rows", 0.5, 128))
    found = steps.profiled(limit_s=10, settings=settings)
    assert found is not None and (steps.step_s, steps.rows) == (0.1, 32)
    assert [(each.setting, each.gain) for each in found.trials] == [("64 rows", 1.6), ("128 rows", 0.8)]
    (advice,) = (each for each in found.advice if each.lever == "batch")
    assert advice.is_measured and advice.text == "64 rows: 512 rows/s"
    # A setting that trains as fast as the others costs nothing, and a slower one its delay.
    slower_s = TRIED_STEPS * 0.5 - TRIED_STEPS * 128 / 320
    assert found.profile_s == pytest.approx(3 * 0.2 + slower_s, abs=1e-6)


def test_what_a_loop_does_between_two_steps_is_in_no_measurement() -> None:
    steps = Steps(between_s=60)
    found = steps.profiled(limit_s=10, settings=(setting(Steps(), "64 rows", 0.1, 64),))
    assert found is not None and found.step_s == 0.1
    assert found.profile_s == pytest.approx(3 * 0.2, abs=1e-6)
    assert [each.gain for each in found.trials] == [1.0]


def test_a_loop_that_ends_early_has_no_profile() -> None:
    assert Steps().profiled(limit_s=10, steps=WARM_STEPS + TIMED_STEPS) is None


def operator(kind: OperatorKind, share: float) -> Operator:
    return Operator(name=kind, kind=kind, calls=1, seconds=share, share=share, usd=Decimal(0), bytes=0)


def test_estimates_follow_amdahl_and_give_way_to_what_was_tried() -> None:
    shares = [operator("product", 0.6), operator("pointwise", 0.2), operator("layout", 0.1)]
    found = {each.lever: each for each in advised(shares, [], 0.25, 0.5, True)}
    expected = {"batch": 2.0, "precision": 1.429, "loading": 1.333, "layout": 1.111, "fusion": 1.111}
    assert {lever: each.gain for lever, each in found.items()} == expected
    assert [*found] == sorted(found, key=lambda lever: -expected[lever]) or found["layout"].gain == 1.111
    assert not any(each.is_measured for each in found.values())
    tried = [Trial(lever="precision", setting="bf16", rows_per_s=10, gain=1.02)]
    assert "precision" not in {each.lever for each in advised(shares, tried, 0.0, None, True)}
    on_cores = {each.lever for each in advised(shares, [], 0.0, None, False)}
    assert on_cores == {"layout"}


def test_weights_are_badly_conditioned_among_those_of_their_step() -> None:
    def weight(name: str, update: float, gradient: float = 1.0, is_matrix: bool = True) -> WeightStep:
        return WeightStep(
            name=name, is_matrix=is_matrix, gradient_norm=gradient, norm=1.0, update_norm=update
        )

    usual = [weight(f"w{at}", 1e-3) for at in range(5)]
    odd = [weight("still", 1e-6), weight("wild", 0.5), weight("dead", 0.0, gradient=0.0)]
    bias = weight("bias", 0.5, is_matrix=False)
    assert [each.name for each in badly_conditioned([*usual, *odd, bias])] == ["still", "wild", "dead"]
    assert badly_conditioned([]) == ()


class Loop:
    """A loop in PyTorch."""

    def __init__(self, autocasts: bool = False) -> None:
        self.autocasts = autocasts
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 1))
        self.unused = nn.Linear(4, 4)
        self.optimizer = torch.optim.AdamW([*self.net.parameters(), *self.unused.parameters()], lr=1e-3)
        self.rows = torch.randn(256, 16), torch.randn(256, 1)
        self.tools = TorchTools([self.net, self.unused], [self.optimizer])

    def step(self) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts):
            self._step()

    def _step(self) -> None:
        loss = (self.net(self.rows[0]) - self.rows[1]).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_the_operators_of_pytorch_are_those_of_the_steps() -> None:
    loop = Loop()
    loop.step()
    loop.tools.start()
    for _ in range(3):
        loop.step()
    found = {each.name: each for each in loop.tools.stop()}
    assert found["addmm"].calls == 3 * 2 and found["addmm"].kind == "product"
    assert found["silu"].calls == 3 and found["silu"].kind == "pointwise"
    assert found["silu"].bytes == 3 * 4 * 256 * 64
    assert found["addmm"].host_s > 0 == found["addmm"].device_s
    assert loop.tools.memory() is None and loop.tools.device == "cpu"
    assert not loop.tools.would_use_bf16


def test_one_step_of_an_optimizer_is_watched_and_no_other() -> None:
    loop = Loop()
    loop.step()
    before = {name: each.detach().clone() for name, each in loop.net.named_parameters()}
    loop.tools.watch_weights()
    loop.step()
    found = {each.name: each for each in loop.tools.weights()}
    for name, old in before.items():
        now = loop.net.get_parameter(name)
        assert found[name].norm == pytest.approx(float(old.norm()))
        assert found[name].update_norm == pytest.approx(float((now - old).norm()), rel=1e-4)
        assert found[name].gradient_norm > 0
    loop.step()
    assert loop.tools.weights() == []


@pytest.mark.parametrize("autocasts", [False, True])
def test_a_loop_that_computes_in_bf16_is_seen(autocasts: bool) -> None:
    loop = Loop(autocasts)
    loop.tools.watch_weights()
    loop.step()
    loop.tools.weights()
    assert loop.tools.is_float32 is not autocasts


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "product"),
        ("aten::mkldnn_convolution", "product"),
        ("aten::_scaled_dot_product_flash_attention", "product"),
        ("aten::copy_", "layout"),
        ("aten::cat", "layout"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::silu_backward", "pointwise"),
        ("aten::clamp_min", "pointwise"),
        ("aten::max_pool2d_with_indices_backward", "pointwise"),
        ("aten::native_layer_norm_backward", "pointwise"),
        ("aten::_log_softmax_backward_data", "pointwise"),
        ("aten::t", "other"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "other"),
    ],
)
def test_operators_are_sorted_by_their_names(name: str, kind: OperatorKind) -> None:
    assert kind_of_operator(name) == kind
