"""Run small fits on one thread: on a busy machine, synchronising several threads costs more than it gains."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import sklearn.ensemble  # noqa: F401  its threads can only be limited after its import

    with threadpool_limits(1):
        yield
