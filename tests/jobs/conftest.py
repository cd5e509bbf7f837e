"""A way to wait for other threads, and to enrich a frame."""

import time
from itertools import count

import pytest

from tests.support.ledgers import folder, ledgers, objects, remote  # noqa: F401  # fixtures


def eventually(condition, seconds=10.0):
    """Wait until what another thread or process does has come true; the time is a bound, not a
    promise.
    """
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come true"
        time.sleep(0.01)


@pytest.fixture
def wait_for():
    return eventually


@pytest.fixture
def enrich(tmp_path):
    """Enriches a DataFrame as a day's rows are: tasks write files, over which it gives a frame with
    audit columns.
    """
    from jobs.run.enrich import write_out
    from jobs.run.plan.planner import plan_tasks
    from jobs.run.rows.keyed_rows import written_schema

    numbers = count()

    def enriched(frame, enrichment):
        prepared, plan = plan_tasks(frame, enrichment)
        files = write_out(prepared, plan, str(tmp_path / f"enriched-{next(numbers)}")).files
        return frame.sparkSession.read.schema(written_schema(prepared.schema, plan.layout)).parquet(
            *files
        )

    return enriched
