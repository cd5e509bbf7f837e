"""A way to wait for other threads."""

import time

import pytest

from tests.support.ledgers import folder, ledgers, objects, remote  # noqa: F401  # fixtures


def eventually(condition, seconds=10.0):
    """Wait until what another thread or process does has come true; the time is a bound, not a promise."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come true"
        time.sleep(0.01)


@pytest.fixture
def wait_for():
    return eventually
