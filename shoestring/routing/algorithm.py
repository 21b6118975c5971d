"""The constants that a decision rests on, and their digest.

Raise ALGORITHM_VERSION with every change of how choices are made.
"""

from __future__ import annotations

from shoestring.config.tariffs import HOURS_PER_MONTH
from shoestring.core.record import digest
from shoestring.pricing import throughput
from shoestring.pricing.learned import calibration, learning
from shoestring.routing.candidates import BYTES_PER_GB, MAX_ESTIMATE, MAX_PREEMPTIONS, UNKNOWN_SIZE_RATIO
from shoestring.routing.decision import Algorithm
from shoestring.routing.question_parts import COMPUTE_US_PER_ROW, MEMORY_HEAVY_GB

ALGORITHM_VERSION = 3

TIE_BREAK = "total P95 dollars, total P95 seconds, then pool, market and format by name"


def _algorithm() -> Algorithm:
    constants = {
        "bytes_per_gb": str(BYTES_PER_GB),
        "compute_us_per_row": str(COMPUTE_US_PER_ROW),
        "gpu_efficiency": str(throughput.GPU_EFFICIENCY),
        "gpu_memory_efficiency": str(throughput.MEMORY_EFFICIENCY),
        "gpu_overlap": str(throughput.SYNC_OVERLAP),
        "hours_per_month": str(HOURS_PER_MONTH),
        "learning": learning.CONSTANTS,
        "max_estimate": str(MAX_ESTIMATE),
        "max_preemptions": str(MAX_PREEMPTIONS),
        "memory_heavy_gb": str(MEMORY_HEAVY_GB),
        "p95": calibration.CONSTANTS,
        "prior_log_sd": str(learning.PRIOR_LOG_SD),
        "tie_break": TIE_BREAK,
        "unknown_size_ratio": str(UNKNOWN_SIZE_RATIO),
        "z95": str(calibration.Z95),
    }
    text = "\n".join([str(ALGORITHM_VERSION), *(f"{name}={constants[name]}" for name in sorted(constants))])
    return Algorithm(algorithm_version=ALGORITHM_VERSION, constants=constants, sha256=digest(text.encode()))


ALGORITHM = _algorithm()
"""The constants in use, as each decision records them."""
