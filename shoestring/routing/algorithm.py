"""The constants that a decision rests on, and their digest. A change of how choices are made raises VERSION."""

from __future__ import annotations

from shoestring.config.tariffs import HOURS_PER_MONTH
from shoestring.core.record import digest
from shoestring.pricing import calibration, learning, throughput
from shoestring.routing.candidates import MOST_LOSSES, MOST_MICRO
from shoestring.routing.decision import Policy
from shoestring.routing.policy import preferences

VERSION = 2

BYTES_PER_GB = 1e9
UNKNOWN_SIZE_RATIO = 1.0
"""Bytes on disk for each byte of row, of a data set whose format is not known."""

TIE_BREAK = "total P95 dollars, total P95 seconds, then pool, market and format by name"


def policy() -> Policy:
    """The constants in force, as they go into a decision."""
    constants = {
        "compute_op_per_row": str(preferences.COMPUTE_OP_PER_ROW),
        "bytes_per_gb": str(BYTES_PER_GB),
        "gpu_efficiency": str(throughput.GPU_EFFICIENCY),
        "hours_per_month": str(HOURS_PER_MONTH),
        "memory_gb": str(preferences.MEMORY_GB),
        "most_losses": str(MOST_LOSSES),
        "most_micro": str(MOST_MICRO),
        "gpu_memory_efficiency": str(throughput.MEMORY_EFFICIENCY),
        "gpu_overlap": str(throughput.SYNC_OVERLAP),
        "learning": learning.CONSTANTS,
        "p95": calibration.CONSTANTS,
        "prior_log_sd": str(learning.PRIOR_LOG_SD),
        "tie_break": TIE_BREAK,
        "unknown_size_ratio": str(UNKNOWN_SIZE_RATIO),
        "z95": str(calibration.Z95),
    }
    text = "\n".join([str(VERSION), *(f"{name}={constants[name]}" for name in sorted(constants))])
    return Policy(version=VERSION, constants=constants, sha256=digest(text.encode()))
