"""What a start of a run or stream deletes of crashed publications."""

import pytest
from deltalake import DeltaTable

from jobs.tables import audit, publishing
from jobs.tables.delivery import write_beside
from jobs.tables.leftovers import delete_what_crashes_left
from tests.jobs.tables import test_publishing as days
from tests.jobs.tables.test_publishing import FIRST, FLIGHTS, SECOND, project  # noqa: F401


@pytest.fixture(autouse=True)
def here(project):  # noqa: F811
    """Each test in a folder of its own."""


def test_the_audit_of_a_day_rewritten_by_optimize_stays():
    publishing.publish(days.run("a", FIRST, [1, 2, 3], parts=2))
    publishing.publish(days.run("b", SECOND, [4]))
    crashed = days.run("crashed", SECOND, [5])
    audit.write(write_beside(crashed.facts))
    before = days.audited() + days.audited(SECOND)
    assert DeltaTable(days.TABLE).optimize.compact()["numFilesAdded"] == 1
    delete_what_crashes_left(FLIGHTS)
    assert len(before) == 5
    assert days.audited() + days.audited(SECOND) == [row for row in before if row[0] != "crashed"]
