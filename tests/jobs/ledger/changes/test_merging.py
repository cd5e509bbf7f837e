"""Sorted files merged into sorted tables of a bounded size."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.ledger import store
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.changes.merging import SortedFile, in_order, merged

NOW = 1_000_000  # µs; later than every record
RECORDS = st.lists(
    st.builds(
        StoredAnswer,
        st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h", "ä"]),
        st.sampled_from(["ok", "miss"]),
        st.just(b"1"),
        st.integers(0, 20),
        st.just("run"),
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 20))
def test_merged_tables_do_not_overlap_and_have_the_newest_record_of_each_key(runs, group, size):
    rows_per_group, store.ROWS_PER_GROUP = store.ROWS_PER_GROUP, group
    try:
        files = [
            SortedFile(
                pq.ParquetFile(pa.BufferReader(store.as_parquet(in_order(as_table(run), NOW))))
            )
            for run in runs
            if run
        ]
    finally:
        store.ROWS_PER_GROUP = rows_per_group
    tables = [as_answers(table) for table in merged(files, size, now_us=NOW)]
    records = sorted(
        (record for run in runs for record in run), key=lambda record: record.answered_at
    )
    newest = {(record.key, record.outcome): record for record in records}
    last = {record.key: record.answered_at for record in records}
    assert [record for table in tables for record in table] == sorted(
        (record for record in newest.values() if record.answered_at == last[record.key]),
        key=lambda record: (record.key.encode(), record.outcome == "miss"),
    )
    for one, following in itertools.pairwise(tables):
        assert one[-1].key.encode() < following[0].key.encode()
