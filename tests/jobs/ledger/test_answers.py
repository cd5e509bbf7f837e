"""Rows of stored answers, of whatever size the answers are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.ledger import answers
from jobs.ledger.answers import SCHEMA, StoredAnswer, as_answers, as_table, taken

RESPONSES = st.lists(
    st.one_of(st.none(), st.text(max_size=8).map(str.encode)), min_size=1, max_size=9
)


@settings(deadline=None, max_examples=40)
@given(RESPONSES, st.data())
def test_rows_with_large_responses_are_read_in_pieces_in_the_requested_order(responses, data):
    stored = [
        StoredAnswer(str(number), "ok", response, number, "run")
        for number, response in enumerate(responses)
    ]
    rows = data.draw(st.lists(st.sampled_from(range(len(stored))), max_size=12))
    half = len(stored) // 2
    table = pa.concat_tables([as_table(stored[:half]), as_table(stored[half:])])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answers, "COPIED_AT_ONCE", 0)
        one_by_one = taken(table, np.array(rows, np.int64))
        patched.setattr(answers, "COPIED_AT_ONCE", 10)
        in_pieces = taken(table, np.array(rows, np.int64))
    assert as_answers(one_by_one) == as_answers(in_pieces) == [stored[row] for row in rows]
    assert in_pieces.schema == SCHEMA


@pytest.mark.proof
def test_rows_are_read_from_more_text_than_an_arrow_array_can_hold():
    size = 11 * (1 << 30) // 10
    large = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, size], np.int32)), pa.py_buffer(bytes(size))
    )
    (small,) = as_table([StoredAnswer("k", "ok", b"1", 1, "run")]).to_batches()
    columns = [large if name == "response" else small[name] for name in SCHEMA.names]
    full = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    table = pa.Table.from_batches([full, full, small])
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        table.take([2])
    assert taken(table, np.array([2]))["response"].to_pylist() == ["1"]
