"""Records that a wrong clock stamped with a time still to come: replaced, refreshed and compacted
as others are.
"""

from datetime import timedelta

import pyarrow as pa
import pytest

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.changes.compaction import compact
from jobs.ledger.resolution import SKEW
from jobs.ledger.selection import select
from tests.support.places import everywhere

NOW_US = 1_700_000_000_000_000
YEAR_US = 365 * 86_400_000_000
TO_COME = NOW_US + YEAR_US
AT_ONCE = timedelta(0)


@pytest.fixture
def stamped(folder, ledgers):
    """An answer of a year to come, which every run finds."""
    folder.write_part("run-1", "0", [ledgers.stored("k", at=TO_COME, response=b'"old"')])
    assert ledgers.known(folder, ["k"], now_us=NOW_US)["k"].response == b'"old"'
    return folder


@everywhere("folder")
def test_a_later_paid_answer_replaces_an_answer_from_the_future(stamped, ledgers):
    stamped.write_part("run-2", "0", [ledgers.stored("k", at=NOW_US, response=b'"new"')])
    assert ledgers.known(stamped, ["k"], now_us=NOW_US + 1)["k"].response == b'"new"'
    compact(stamped, grace=AT_ONCE, now_us=NOW_US + 2)
    compact(stamped, grace=AT_ONCE, now_us=NOW_US + 3)
    assert ledgers.known(stamped, ["k"], now_us=NOW_US + 4)["k"].response == b'"new"'
    # that year has come
    assert ledgers.known(stamped, ["k"], now_us=TO_COME + 1)["k"].response == b'"new"'


def test_a_later_paid_miss_replaces_an_answer_from_the_future(stamped, ledgers):
    stamped.write_part("run-2", "0", [ledgers.stored("k", "miss", NOW_US)])
    assert ledgers.known(stamped, ["k"], now_us=NOW_US + 1)["k"].outcome == "miss"
    assert compact(stamped, grace=AT_ONCE, now_us=NOW_US + 2).rows_dropped == 1
    assert ledgers.known(stamped, ["k"], now_us=TO_COME + 1)["k"].outcome == "miss"


@everywhere("folder")
def test_an_expired_answer_from_the_future_is_replaced_by_the_new_answer(stamped, ledgers):
    stamped.write_part("refresh", "0", [ledgers.stored("k", "expired", NOW_US)])
    wanted = pa.array(["k"])
    forever = Ttl(ok=None, miss=None, error=None)
    assert select(stamped, wanted, now_us=NOW_US + 1, ttl=forever).refreshed.to_pylist() == ["k"]
    stamped.write_part("run-2", "0", [ledgers.stored("k", at=NOW_US + 2, response=b'"new"')])
    assert ledgers.known(stamped, ["k"], now_us=NOW_US + 3)["k"].response == b'"new"'


def test_an_answer_from_the_future_is_not_used_beyond_its_time_to_live(stamped):
    limited = Ttl(ok=timedelta(days=1000), miss=None, error=None)
    assert select(stamped, pa.array(["k"]), now_us=NOW_US, ttl=limited).expired.to_pylist() == ["k"]


def test_clocks_that_differ_by_less_than_a_few_minutes_are_believed(folder, ledgers):
    folder.write_part("run-1", "0", [ledgers.stored("k", at=NOW_US + SKEW, response=b'"ahead"')])
    folder.write_part("run-2", "0", [ledgers.stored("k", at=NOW_US, response=b'"behind"')])
    assert ledgers.known(folder, ["k"], now_us=NOW_US)["k"].response == b'"ahead"'


def test_a_mark_from_the_future_is_settled_by_an_answer(folder, ledgers):
    folder.write_part("run-1", "0", [ledgers.stored("k", "asked", TO_COME)])
    assert ledgers.known(folder, ["k"], now_us=NOW_US)["k"].outcome == "asked"
    folder.write_part("run-1", "1", [ledgers.stored("k", at=NOW_US)])
    assert ledgers.known(folder, ["k"], now_us=NOW_US + 1)["k"].outcome == "ok"
