"""The number of hypothesis examples of a property test: a profile sets it, with a factor for each test.

dev (`make test`) runs a quarter of the examples that a test states, ci (`make test-all`) half of them, and
nightly ten times as many. `pytest --hypothesis-profile nightly` chooses one. Each run draws others, except in
ci, where the same test has the same examples: what fails in a check is what the change broke.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

STATED, MIN_EXAMPLES = 100, 5
PROFILES = {"dev": STATED // 4, "ci": STATED // 2, "nightly": 10 * STATED}


def register_profiles() -> None:
    """Register the profiles; dev is the default. None has a deadline: on a busy machine it would fail."""
    for name, count in PROFILES.items():
        settings.register_profile(name, deadline=None, max_examples=count, derandomize=name == "ci")
    settings.load_profile("dev")


def examples(stated: int, **options: Any) -> settings:
    """Return settings with the profile's share of the stated examples."""
    count = round(stated * settings.default.max_examples / STATED)
    return settings(max_examples=max(count, min(stated, MIN_EXAMPLES)), **options)


def scaled(dev_count: int) -> int:
    """Return a number of seeds: `dev_count` in the profile dev, and in proportion in the others."""
    return dev_count * settings.default.max_examples // PROFILES["dev"]
