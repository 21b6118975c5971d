"""The cost of a network on a GPU, by formula: the router's estimate until there are receipts."""

from __future__ import annotations

from typing import Any, NamedTuple

FLOP_PER_PRODUCT = 6
"""Of the forward pass two, of the backward pass four (Kaplan et al. 2020, arXiv 2001.08361, section 2.1)."""

TF32_FACTOR = 2
"""A pool's TFLOP/s are those of 16-bit numbers; tensor cores multiply TF32 at half of it (NVIDIA's data
sheets)."""

VALUE_PASSES = 10
"""Times that a value of the network is written or read in a step, in its forward and backward pass."""

OPERATION_US = 10.0
"""Microseconds of a reference core to start an operation, with PyTorch's own work for it. Small networks wait
for this, not for the GPU."""

FORWARD_SHARE, FORWARD_OPERATIONS = 1 / 3, 0.36
"""The shares of a step that a forward pass is: of what it computes, and of its operations."""

LOAD_US, LOAD_BYTE_US = 0.5, 0.001
"""Microseconds of a reference core to load a row, and for each of its bytes."""

CUDA_S, CUDA_GB = 5.0, 1.0
"""The seconds before the first step and the memory that CUDA, cuBLAS and cuDNN take."""

NO_GPU: dict[str, Any] = {
    "gpu": "no",
    "gpu_flop_per_row": 0.0,
    "gpu_bytes_per_row": 0.0,
    "gpu_memory_gb": 0.0,
    "gpu_host_us_per_row": 0.0,
    "gpu_setup_s": 0.0,
}
"""The fields of a `Need` for a family that stays on cores."""


class StepSize(NamedTuple):
    """The size of a step. `products` of weights, `values` of the layers and `row_bytes` are those of a row;
    `operations` are the step's, whatever its rows (counted by tests/training/test_gpu_needs.py)."""

    products: float
    values: float
    operations: int
    row_bytes: float
    batch_rows: int


def predicting(step: StepSize, batch_rows: int) -> StepSize:
    """Return the size of a forward pass over a batch of other rows."""
    return StepSize(
        products=FORWARD_SHARE * step.products,
        values=FORWARD_SHARE * step.values,
        operations=round(FORWARD_OPERATIONS * step.operations),
        row_bytes=step.row_bytes,
        batch_rows=batch_rows,
    )


def on_gpu(size: StepSize, copies: float) -> dict[str, Any]:
    """Return the fields of a `Need` for a GPU, and the time of a step that starts its operations. `copies`:
    of each value that are in its memory at once."""
    step_us = OPERATION_US * size.operations
    host_us = LOAD_US + LOAD_BYTE_US * size.row_bytes + step_us / size.batch_rows
    return {
        "gpu": "may",
        "gpu_flop_per_row": float(round(TF32_FACTOR * FLOP_PER_PRODUCT * size.products)),
        "gpu_bytes_per_row": float(round(4 * VALUE_PASSES * size.values)),
        "gpu_memory_gb": round(CUDA_GB + 4 * copies * size.batch_rows * size.values / 1e9, 3),
        "gpu_host_us_per_row": round(host_us, 3),
        "gpu_setup_s": CUDA_S,
        "step_us": step_us,
    }
