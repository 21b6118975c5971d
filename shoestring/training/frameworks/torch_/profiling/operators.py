"""PyTorch's profiler, and the update of each weight, for the profile of a loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile
from torch.utils.hooks import RemovableHandle

from shoestring.training.profiling.loop_profile import OperatorTime
from shoestring.training.profiling.profile import DeviceMemory, OperatorKind, WeightStep

KINDS: tuple[tuple[OperatorKind, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"^Optimizer\.|_fused_adam|_fused_sgd|_foreach_")),
    ("product", re.compile(r"::_?(add|b|badd)?mm\b|conv|attention|::linear\b|::einsum|gemm|_rnn|lstm|gru")),
    ("layout", re.compile(r"::(copy_|clone|contiguous|cat|stack|index_select|gather|repeat)\b|Memcpy")),
    (
        "pointwise",
        re.compile(
            r"::_?(add|sub|mul|div|neg|pow|r?sqrt|exp|log|sin|cos|abs|where|masked_fill|clamp(_min|_max)?|"
            r"lerp|sigmoid|tanh|relu|silu|gelu|elu|threshold|hardtanh|(native_)?dropout|bernoulli|sum|mean|"
            r"norm|amax|(log_)?softmax|nll_loss|cross_entropy|(native_)?(batch|layer)_norm|cumsum|eq|ne|gt|"
            r"ge|lt|le|bitwise_\w+|fill|zero|(max|avg)_pool2d\w*?)(_backward|_backward_data)?_?\b"
        ),
    ),
)


def kind_of_operator(name: str) -> OperatorKind:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "other")


class TorchTools:
    """`Tools` of a loop in PyTorch. `is_float32`: neither weights nor autocast in a watched step had a lower
    precision."""

    framework = f"PyTorch {torch.__version__}"

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self._named = {
            id(weight): name
            for model in models
            for name, weight in model.named_parameters()
            if weight.requires_grad
        }
        self._optimizers = optimizers
        weights = [weight for model in models for weight in model.parameters()]
        self._device = weights[0].device if weights else torch.device("cpu")
        self._has_bf16 = self._on_gpu and torch.cuda.get_device_capability(self._device)[0] >= 8
        self.is_float32 = all(weight.dtype == torch.float32 for weight in weights)
        self._profiler: profile | None = None
        self._hook: RemovableHandle | None = None
        self._watched: WatchedStep | None = None

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @property
    def device(self) -> str:
        return torch.cuda.get_device_name(self._device) if self._on_gpu else str(self._device)

    def wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    def start(self) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        self._profiler = profile(activities=activities, profile_memory=True)
        self._profiler.start()

    def stop(self) -> list[OperatorTime]:
        assert self._profiler is not None
        self.wait()
        self._profiler.stop()
        found = [_operator(each, self._on_gpu) for each in self._profiler.key_averages()]
        self._profiler = None
        return [each for each in found if each is not None]

    @property
    def would_use_bf16(self) -> bool:
        return self._has_bf16 and self.is_float32

    def watch_weights(self) -> None:
        self._watched = WatchedStep(self._named, self._optimizers)
        self._hook = register_module_forward_pre_hook(self._note_precision)

    def _note_precision(self, module: nn.Module, inputs: Any) -> None:
        if torch.is_autocast_enabled(self._device.type):
            self.is_float32 = False

    def weights(self) -> list[WeightStep]:
        watched, self._watched = self._watched, None
        if self._hook is not None:
            self._hook.remove()
        return watched.end() if watched is not None else []

    def threads(self) -> int:
        return torch.get_num_threads()

    def memory(self) -> DeviceMemory | None:
        if not self._on_gpu:
            return None
        stats = torch.cuda.memory_stats(self._device)
        return DeviceMemory(
            peak_bytes=stats["allocated_bytes.all.peak"],
            reserved_bytes=stats["reserved_bytes.all.current"],
            wasted_bytes=stats["inactive_split_bytes.all.current"],
        )


class WatchedStep:
    """The gradient and the update of each weight in one step of some optimizers."""

    def __init__(self, names: dict[int, str], optimizers: Sequence[Optimizer]) -> None:
        self._names, self._before = names, dict[int, tuple[Tensor, Tensor, Tensor]]()
        self._found = list[WeightStep]()
        self._hooks: list[RemovableHandle] = []
        for each in optimizers:
            self._hooks += [
                each.register_step_pre_hook(self._begin),
                each.register_step_post_hook(self._end),
            ]

    @torch.no_grad()
    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for weight in _weights(optimizer):
            gradient = weight.new_zeros(()) if weight.grad is None else weight.grad.float().norm()
            self._before[id(weight)] = (weight.detach().clone(), gradient, weight.float().norm())

    @torch.no_grad()
    def _end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for weight in _weights(optimizer):
            if (before := self._before.pop(id(weight), None)) is not None:
                old, gradient, norm = before
                self._found.append(
                    WeightStep(
                        name=self._names.get(id(weight), "a weight of no model"),
                        is_matrix=weight.dim() > 1,
                        gradient_norm=float(gradient),
                        norm=float(norm),
                        update_norm=float((weight - old).float().norm()),
                    )
                )

    def end(self) -> list[WeightStep]:
        for hook in self._hooks:
            hook.remove()
        return self._found


def _weights(optimizer: Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"] if weight.requires_grad]


def _operator(found: Any, on_gpu: bool) -> OperatorTime | None:
    """Return a row of the profiler's table; None: a kernel, whose time is in the operator that started it."""
    if found.device_type != DeviceType.CPU or found.key.startswith("ProfilerStep"):
        return None
    device_us = found.self_device_time_total if on_gpu else 0.0
    taken = found.self_device_memory_usage if on_gpu else found.self_cpu_memory_usage
    return OperatorTime(
        name=found.key.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: "),
        kind=kind_of_operator(found.key),
        calls=found.count,
        host_s=found.self_cpu_time_total / 1e6,
        device_s=device_us / 1e6,
        bytes=taken,
    )
