"""Micro-batches on top of what a day's run has published."""

import pytest

from jobs.schema import RowChanges
from jobs.streams.batch_publishing import MicroBatch, publish_batch
from jobs.tables import publishing
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import FIRST, project, run  # noqa: F401

TABLE = test_publishing.TABLE


@pytest.fixture(autouse=True)
def here(project):  # noqa: F811
    """Each test in a folder of its own."""


def test_a_batch_after_a_run_of_changed_rows_counts_the_rows_that_were_kept():
    enriched = run("changed", FIRST, [1], changes=RowChanges(1, 0, 0, 0, kept=2))
    publishing.publish(enriched)
    batch = run("query-0-a", FIRST, [7])
    with leased(TABLE, FIRST, "query-0-a") as lease:
        publish_batch([batch], MicroBatch("query", 0), [lease])
    assert run_records.of_run("flights", FIRST, "query-0-a").rows_published == 4
