"""Claim: on a GPU a network trains with at least 90% of the rows a second of a loop written by hand.

The data is drawn (bench/gpu_cases.py). The loop by hand has its rows on the device as tensors, the same
network, loss, precision, fused AdamW and average. On a GPU also: the precision that the probe takes; no step
waits for it; its losses are those of cores within the spread of seeds; with half of the memory that a batch
takes, the batch is computed in parts, with the same loss; joules of a million rows, by hand as well; and how
far the router's formula (training/families/gpu_needs.py) is from what was measured.

python bench/gpu.py [--device cuda] [--quick] [--tflops 989]
"""

from __future__ import annotations

import argparse
import gc
import math
import tempfile
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import torch
from gpu_cases import Case, gpu_cases
from loop_overhead import idle_task
from machine import describe

from shoestring.backends.local import WallClock
from shoestring.backends.nvml import GpuUsage
from shoestring.core.errors import StageFailed
from shoestring.core.types import Need, Pool
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.pricing.throughput import PoolArrays, row_seconds
from shoestring.spending.meter import Meter
from shoestring.training.contracts import StepPlan
from shoestring.training.families.data_shape import encoded_shape
from shoestring.training.families.registry import family_of
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.gradients.norm_limit import MAX_NORM
from shoestring.training.frameworks.torch_.net_kind import NetRows
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.precision import PROBE_STEPS, WARM_STEPS
from shoestring.training.loop import Training

WINDOW_STEPS = 16
CLAIM = 0.9


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


class Pace(NamedTuple):
    """What a loop does in a second, and the energy of the GPU for a million rows; NaN: none is reported."""

    rows_per_s: float
    joules: float

    @property
    def text(self) -> str:
        joules = "" if math.isnan(self.joules) else f", {self.joules:,.0f} J a million"
        return f"{self.rows_per_s:,.0f} rows/s{joules}"


class Stopwatch:
    """Measures from when it is made, by the clock and by the energy counters of the GPUs."""

    def __init__(self) -> None:
        self._usage, self._began_s = GpuUsage(), time.monotonic()
        self._usage.read()

    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    def pace(self, rows: int) -> Pace:
        seconds = self.seconds()
        self._usage.read()
        joules = self._usage.joules
        return Pace(rows / seconds, math.nan if joules is None else joules / rows * 1e6)


def trained(case: Case, device: str, seconds: float) -> tuple[Pace, NetLearner, float]:
    """Return the pace of the loader and the learner, and the seconds of the first step."""
    train, _ = case.split()
    began_s = time.monotonic()
    learner = NetLearner(
        case.kind, train.take(np.arange(min(1000, len(train)))), len(train), Device(device, 0)
    )
    plan, batch = StepPlan(learner.batch_rows, 1.0), learner.batch_rows
    with Loader(train, SampleCursor(seed=0), gather=learner.gather, threads=2) as loader:
        float(learner.advance(plan, loader).loss)
        first_s = time.monotonic() - began_s
        # An epoch moves the rows to the device, and the first steps choose the precision.
        for _ in range(max(-(-len(train) // batch), 2 * (WARM_STEPS + PROBE_STEPS))):
            learner.advance(plan, loader)
        wait(device)
        watch, done = Stopwatch(), 0
        while watch.seconds() < seconds:
            learner.mark()
            losses = [learner.advance(plan, loader) for _ in range(WINDOW_STEPS)]
            float(sum(each.loss for each in losses))
            done += sum(each.samples for each in losses)
        return watch.pace(done), learner, first_s


def by_hand(case: Case, device: str, seconds: float, is_bf16: bool) -> Pace:
    """Return the pace of a loop written by hand, with all rows on the device."""
    train, _ = case.split()
    samples, kind = train.take(np.arange(len(train))), case.kind
    rows = NetRows(kind.inputs(samples), kind.targets(samples)).to(torch.device(device))
    net = kind.new(samples.part(0, min(1000, len(samples)))).to(device)
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    batch, done, at, order = case.settings.batch_rows, 0, 0, torch.randperm(len(rows), device=device)
    watch = Stopwatch()
    for step in range(1 << 30):
        if step == 3 * WINDOW_STEPS:
            wait(device)
            watch, done = Stopwatch(), 0
        if step % WINDOW_STEPS == 0:
            wait(device)
            if step > 3 * WINDOW_STEPS and watch.seconds() >= seconds:
                break
        if at + batch > len(rows):
            at, order = 0, torch.randperm(len(rows), device=device)
        part = rows.take(order[at : at + batch])
        with torch.autocast(device, torch.bfloat16, enabled=is_bf16):
            out = net(*kind.augmented(part.inputs, 0.0))
        loss = kind.losses(out.float(), part.targets) / kind.divisor(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)
        optimizer.step()
        average.update_parameters(net)
        at, done = at + batch, done + batch
    return watch.pace(done)


def waits(learner: NetLearner, case: Case) -> str:
    """Return how often a step waits for the device, of its own accord and by the profiler."""
    train, _ = case.split()
    rows = learner.prepare(train.take(np.arange(learner.batch_rows)))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(WINDOW_STEPS):
            learner.step(rows, 1e-4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiled:
        for _ in range(WINDOW_STEPS):
            learner.step(rows, 1e-4)
    names = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "Memcpy DtoH")
    found = [each for each in profiled.events() if each.name.startswith(names)]
    # The profiler waits once at its own end.
    return f"{max(0, len(found) - 1)} waits in {WINDOW_STEPS} steps"


def in_parts(case: Case, device: str) -> str:
    """Return what a step makes of half of the memory that its batch takes."""
    train, _ = case.split()
    given, total = train.take(np.arange(case.settings.batch_rows)), torch.cuda.mem_get_info()[1]
    losses, most = list[float](), 0
    for share in (1.0, 0.5):
        learner = NetLearner(case.kind, given, len(train), Device(device, 0))
        rows, learner.precision.choice = learner.prepare(given), "float32"
        # The first step also makes the optimizer's state.
        learner.micro_rows = max(1, len(given) // 8)
        learner.step(rows, 1e-4)
        learner.micro_rows = learner.most_micro_rows
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_reserved()
        if share < 1:
            torch.cuda.set_per_process_memory_fraction((held + share * max(0, most - held)) / total)
        try:
            losses.append(float(learner.step(rows, 1e-4)))
        except (StageFailed, torch.OutOfMemoryError) as error:
            return f"half of the memory: {error}"
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        most = torch.cuda.max_memory_reserved()
    found = min(learner.micro_rows, len(given))
    of_rows = f"{found:,} of {len(given):,} rows at once"
    return f"half of the memory: {of_rows}, loss {losses[1]:.5f}, with all of it {losses[0]:.5f}"


def validated(case: Case, device: str, seed: int, folder: Path) -> float:
    """Return the validation loss of a whole training by the loop."""
    clock = WallClock()
    train, validation = case.split()
    meter = Meter(Decimal(0), clock.monotonic_s(), Decimal(0), clock.monotonic_s() + 600)
    task = replace(
        idle_task(folder, clock, 64, 1, meter),
        run_id=f"{device}-{seed}",
        seed=seed,
        encoding=case.encoding,
        settings=case.settings.model_copy(update={"max_epochs": 2}),
        train=train,
        validation=validation,
        device=device,
        cores=2,
    )
    loss = Training(task, family_of(task.settings).learner(task)).run().val_loss
    assert loss is not None, "no time was left for the last validation"
    return loss


def agree(case: Case, device: str, seeds: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        here, there = (
            [validated(case, each, seed, Path(name)) for seed in range(seeds)] for each in ("cpu", device)
        )
    spread = stdev([*here, *there])
    verdict = "within" if abs(mean(here) - mean(there)) <= 2 * spread else "OUTSIDE"
    return (
        f"validation loss {mean(here):.4f} on cores, {mean(there):.4f} on {device}, of {seeds} seeds each: "
        f"{verdict} two standard deviations of {spread:.4f}"
    )


def estimated_rows_per_s(case: Case, tflops: float) -> float:
    """Return what the router expects of the device before there are receipts."""
    shape = encoded_shape(case.encoding, len(case.rows))
    need = family_of(case.settings).train_need(Need(stage="train"), shape)
    gpu = {"gpu": "GPU", "gpu_count": 1, "gpu_memory_gb": 80, "gpu_tflops": tflops}
    pool = Pool(name="gpu", cores=16, memory_gb=64, markets={}, **gpu)
    return float(1 / row_seconds(need, PoolArrays.from_pools([pool]))[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tflops", type=float, default=989, help="of 16-bit numbers, by the data sheet")
    args = parser.parse_args()
    seconds, rounds, seeds = (1.0, 1, 2) if args.quick else (4.0, 3, 5)
    print(describe(), f"PyTorch {torch.__version__}", flush=True)
    if args.device != "cpu":
        print(torch.cuda.get_device_properties(0))
    ratios = []
    for case in gpu_cases(args.quick):
        own, plain, first_s = [], [], []
        for _ in range(rounds):
            pace, learner, began_s = trained(case, args.device, seconds)
            own.append(pace)
            first_s.append(began_s)
            plain.append(by_hand(case, args.device, seconds, learner.precision.is_bf16))
        mine, theirs = sorted(own)[rounds // 2], sorted(plain)[rounds // 2]
        ratios.append(mine.rows_per_s / theirs.rows_per_s)
        print(f"{case.name}: {mine.text}, by hand {theirs.text}: {ratios[-1]:.2f} times")
        print(f"  first step after {first_s[0]:.1f} s, {learner.precision.choice}", flush=True)
        if args.device != "cpu":
            ratio = estimated_rows_per_s(case, args.tflops) / mine.rows_per_s
            print(f"  {waits(learner, case)}; the router's estimate is {ratio:.2f} times what was measured")
            print(f"  {in_parts(case, args.device)}")
            print(f"  {agree(case, args.device, seeds)}", flush=True)
    print(f"least {min(ratios):.2f} times the loop by hand (claim: {CLAIM})")
    return 0 if min(ratios) >= CLAIM else 1


if __name__ == "__main__":
    raise SystemExit(main())
