"""The number of hypothesis examples of a property test: a profile sets it, with a factor for each test.

dev (`make test`) runs a quarter of the examples of ci (`make test-all`); nightly runs ten times as many as
ci. `pytest --hypothesis-profile nightly` chooses one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

CI_EXAMPLES, MIN_EXAMPLES = 100, 5
PROFILES = {"dev": CI_EXAMPLES // 4, "ci": CI_EXAMPLES, "nightly": 10 * CI_EXAMPLES}


def register_profiles() -> None:
    """Register the profiles; dev is the default. None has a deadline: on a busy machine it would fail."""
    for name, count in PROFILES.items():
        settings.register_profile(name, deadline=None, max_examples=count)
    settings.load_profile("dev")


def examples(ci_count: int, **options: Any) -> settings:
    """Return settings with `ci_count` examples in the profile ci, and in proportion in the others."""
    count = round(ci_count * settings.default.max_examples / CI_EXAMPLES)
    return settings(max_examples=max(count, min(ci_count, MIN_EXAMPLES)), **options)


def scaled(dev_count: int) -> int:
    """Return a number of seeds: `dev_count` in the profile dev, and in proportion in the others."""
    return dev_count * settings.default.max_examples // PROFILES["dev"]
