"""Two models that several tests use, and do not change."""

from __future__ import annotations

import pytest
from trained_models import Trained, trained


@pytest.fixture(scope="session")
def blend(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("blend"), "blend")


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("linear"), "linear", "price")
