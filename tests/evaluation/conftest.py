"""Small fits are quickest on one thread: several wait for each other on a busy machine."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import sklearn.ensemble  # noqa: F401  its threads are there to be limited only once it is imported

    with threadpool_limits(1):
        yield
