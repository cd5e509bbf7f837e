"""Records that gather until they are written."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.ledger.keys import key_text
from jobs.ledger.writing import record_buffer
from jobs.ledger.writing.record_buffer import RecordBuffer

RECORD = st.tuples(
    st.tuples(st.text()), st.sampled_from(["ok", "miss", "error"]),
    st.none() | st.text().map(str.encode), st.integers(0, 1 << 60),
)  # fmt: skip


@given(records=st.lists(RECORD), largest=st.integers(1, 20))
def test_records_are_those_that_were_given_in_as_many_pieces_as_arrow_needs(records, largest):
    before, record_buffer.LARGEST = record_buffer.LARGEST, largest
    try:
        gathered = RecordBuffer()
        for record in records:
            gathered.append(*record)
        table = gathered.table("run-1", hidden=False)
    finally:
        record_buffer.LARGEST = before
    table.validate(full=True)
    assert len(gathered) == table.num_rows == len(records)
    times = table["answered_at"].cast("int64").to_pylist()
    message = [None if text is None else text.encode() for text in table["response"].to_pylist()]
    assert table["key"].to_pylist() == [key_text(key) for key, *_ in records]
    assert list(zip(table["outcome"].to_pylist(), message, times, strict=True)) == [
        record[1:] for record in records
    ]
