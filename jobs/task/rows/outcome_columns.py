"""Outcomes of rows as columns: answer and audit.

They come from called rows, or from outcomes known before any call, and are written under the
lookup's names.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.schema import columns as schema
from jobs.task.lookup.lookup_state import LookupState

TIMESTAMP = schema.PUBLISHED_TABLE[1].arrow_type
ATTEMPT = schema.AUDIT_TABLE[2].arrow_type.value_type
FIELDS = [
    pa.field("status", pa.string()),  # null: there is no outcome yet
    pa.field("answered_at", TIMESTAMP),
    pa.field("source", pa.string()),
    pa.field("attempts", pa.list_(ATTEMPT)),
    pa.field("latency_ms", pa.float64()),
    pa.field("paused_ms", pa.float64()),
    pa.field("error", pa.string()),
]
ANSWER = "answer_"  # answer_0, answer_1, ...: the answer's columns, in their order
OF_CALLS = frozenset(("attempts", "latency_ms", "paused_ms"))  # without a call empty, or null


def outcome_schema(answers: Sequence[AnswerColumn]) -> pa.Schema:
    """Return the columns of an outcome: FIELDS, then the columns of the answer."""
    return pa.schema(
        [
            *FIELDS,
            *(pa.field(f"{ANSWER}{n}", answer.arrow_type) for n, answer in enumerate(answers)),
        ]
    )


def build_outcomes(
    states: Sequence[LookupState], answers: Sequence[AnswerColumn]
) -> pa.RecordBatch:
    """Return the outcomes of called rows, in order; states is not empty."""
    attempts = [state.attempts for state in states]
    starts, ends, throttled = (
        zip(*flat, strict=True) if (flat := list(chain.from_iterable(attempts))) else ((), (), ())
    )
    offsets = offsets_from(np.fromiter(map(len, attempts), np.int32, len(states)))
    # in Python: beside calls, each of Arrow's functions costs as much as 500 rows here
    lasted = [
        (state.finished - state.attempts[0][0]) / 1e3 if state.attempts and state.finished else None
        for state in states
    ]
    paused = [state.paused * 1e3 if state.attempts else None for state in states]
    errors = [state.error for state in states]
    if any(errors):
        errors = [state.error if state.status in schema.FAILED else None for state in states]
    nothing = (None,) * len(answers)
    values = zip(*[state.answer or nothing for state in states], strict=True)
    arrays = [
        few_texts([state.status for state in states]),
        pa.array([state.answered_at for state in states], TIMESTAMP),
        few_texts([state.source for state in states]),
        list_attempts(
            offsets,
            [
                pa.array(starts, pa.int64()),
                pa.array(ends, pa.int64()),
                pa.array(throttled, pa.bool_()),
            ],
        ),
        pa.array(lasted, pa.float64()),
        pa.array(paused, pa.float64()),
        few_texts(errors),
        *(
            pa.array(column, answer.arrow_type)
            for answer, column in zip(answers, values, strict=True)
        ),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=outcome_schema(answers))


def without_attempts(
    rows: int,
    *,
    status: Any,
    answered_at: Any,
    source: Any,
    error: Any,
    answers: Sequence[Any],
    schema: pa.Schema,
) -> pa.RecordBatch:
    none = pa.nulls(rows, pa.float64())
    no_attempts = list_attempts(
        np.zeros(rows + 1, np.int32), [pa.nulls(0, field.type) for field in ATTEMPT]
    )
    arrays = [status, answered_at, source, no_attempts, none, none, error, *answers]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def list_attempts(offsets: np.ndarray, parts: Sequence[pa.Array]) -> pa.ListArray:
    """Return the attempts of each row from the starts, ends and throttled flags of all attempts."""
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.StructArray.from_arrays(parts, fields=list(ATTEMPT)),
        type=pa.list_(ATTEMPT),
    )


def offsets_from(counts: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def few_texts(texts: list[str | None]) -> pa.Array:
    """Return the Arrow array of at least one text; fast where all are equal."""
    first = texts[0]
    if texts.count(first) == len(texts):
        return pa.nulls(len(texts), pa.string()) if first is None else pa.repeat(first, len(texts))
    return pa.array(texts, pa.string())


def answer_columns(name: str, answers: Sequence[AnswerColumn], outcomes: Any) -> dict[str, Any]:
    columns = {
        answer.name: outcomes.column(f"{ANSWER}{number}") for number, answer in enumerate(answers)
    }
    columns[schema.published_status(name)] = outcomes.column("status")
    columns[schema.published_answered_at(name)] = outcomes.column("answered_at")
    return columns


def audit_columns(name: str, outcomes: Any) -> dict[str, Any]:
    return {
        schema.status(name): outcomes.column("status"),
        schema.source(name): outcomes.column("source"),
        schema.attempts(name): outcomes.column("attempts"),
        schema.latency_ms(name): outcomes.column("latency_ms"),
        schema.paused_ms(name): outcomes.column("paused_ms"),
        schema.error(name): outcomes.column("error"),
    }
