"""The watermark that a stream keeps in its checkpoint."""

import datetime as dt
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.schema import columns as schema
from jobs.streams.stream_watermark import StreamWatermark
from tidegate import EventTime

DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
EARLIER, LATER = DAY - dt.timedelta(hours=1), DAY + dt.timedelta(days=365)


@pytest.fixture
def advance(tmp_path):
    """Adds a batch with a row of these values in a new process; returns its late rows."""

    def added(column, **values):
        pq.write_table(pa.table({name: [value] for name, value in values.items()}), tmp_path / "f")
        facts = SimpleNamespace(files=[str(tmp_path / "f")])
        event_time = EventTime(column, max_out_of_orderness=dt.timedelta(0))
        return StreamWatermark(event_time, tmp_path).advance([SimpleNamespace(facts=facts)])

    return added


def test_a_new_event_time_column_starts_without_a_watermark(advance):
    marked = {schema.LATE: False}
    assert advance("due", created=DAY, due=LATER, **marked) == 0
    assert advance("created", created=DAY, due=DAY, **marked) == 0
    assert advance("Created", created=EARLIER, due=DAY, **marked) == 1


def test_the_watermark_of_a_checkpoint_of_0_1_0_is_kept_for_the_declared_column(advance, tmp_path):
    marked = {schema.LATE: False}
    # 0.1.0 wrote no column
    greatest = round(DAY.timestamp() * 1000)
    (tmp_path / "watermark.json").write_text(f'{{"greatest_event_time_ms": {greatest}}}')
    assert advance("at", at=EARLIER, **marked) == 1
    assert advance("at", at=LATER, **marked) == 0
    assert advance("at", at=DAY, **marked) == 1


def test_a_stream_whose_event_time_was_removed_has_no_late_rows(advance, tmp_path):
    marked = {schema.LATE: False}
    assert advance("at", at=DAY, **marked) == 0
    assert StreamWatermark(None, tmp_path).advance([]) == 0
    assert advance("at", at=EARLIER, **marked) == 1


def test_a_batch_from_before_event_time_was_declared_has_no_late_rows(advance):
    assert advance("at", at=DAY) == 0
    assert advance("at", at=EARLIER, **{schema.LATE: False}) == 1


def test_a_batch_from_before_the_event_time_column_moves_no_watermark(advance):
    assert advance("at", town="Ghent", **{schema.LATE: False}) == 0
    assert advance("at", at=DAY, **{schema.LATE: False}) == 0
