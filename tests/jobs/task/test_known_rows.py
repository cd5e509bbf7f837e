"""Rows whose outcomes are known before any call: completed as columns, they leave as rows that are
asked one by one.
"""

import dataclasses
import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core import WatermarkStrategy
from jobs.declare.answers.answer_json import dump
from jobs.declare.ledger_settings import Ttl
from jobs.errors import RowFailed
from jobs.ledger.answers import StoredAnswer, as_table
from jobs.ledger.index import write_index
from jobs.ledger.keyed_file import write_keyed
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.schema import columns as schema
from jobs.task.rows import known_outcomes
from jobs.task.rows.asked_once import AskedFile
from jobs.task.rows.ledger_hits import LedgerHits
from jobs.task.rows.outcome_columns import ATTEMPT
from jobs.task.rows.row_elements import RowElements
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import Function, batch, in_time, lookup, plan
from tests.support.examples import examples
from tidegate import Retry

KEYS = st.none() | st.integers(0, 12)
STORED = st.sampled_from(["ok", "miss", "error", "asked", "unfit"])
ASKED = st.sampled_from(["ok", "miss", "error", "timeout", "unknown"])
NAMES = ("first", "a")


@st.composite
def days(draw):
    """Rows of a task in batches, what is known of their keys at each lookup, and how they are to
    leave.
    """
    rows = draw(st.lists(st.tuples(KEYS, st.integers(0, 9) | st.none()), min_size=1, max_size=40))
    cuts = sorted(draw(st.sets(st.integers(1, 40), max_size=4)))
    return {
        "rows": rows,
        "edges": [0, *(cut for cut in cuts if cut < len(rows)), len(rows)],
        "stored": [
            draw(st.dictionaries(st.integers(0, 12), STORED))
            for _ in range(draw(st.integers(1, 2)))
        ],
        "asked": draw(st.dictionaries(st.integers(0, 12), ASKED, max_size=5)),
        "mode": draw(st.sampled_from(["ordered", "unordered", "key_ordered"])),
        "event_time": draw(st.sampled_from([None, "at"])),
        "bound_ms": draw(st.sampled_from([0, 2])),
        "may_call": draw(st.booleans()),
        "idempotent": draw(st.booleans()),
        "shared": draw(st.booleans()),
        "answer_bytes": draw(st.sampled_from([64 << 20, 64 << 20, 300])),
        "seed": draw(st.integers(0, 9)),
    }


def stored_answer(key, kind):
    response = {
        "ok": {"first_x": -key, "a_x": -key},
        "unfit": ["a list"],
        "error": f"no {key}",
    }.get(kind)
    outcome = "ok" if kind == "unfit" else kind
    return StoredAnswer(
        key_text((key,)),
        outcome,
        None if response is None else dump(response),
        1_000 + key,
        "before",
    )


def asked_first(path, asked, source_of):
    """The file of keys that were asked before the rows; the audit of a key's call is at
    `source_of[key]`.
    """
    keys = [key for key in asked if key in source_of]
    kinds = [asked[key] for key in keys]
    table = {
        "key": pa.array([key_text((key,)) for key in keys], pa.string()),
        "outcome": kinds,
        "error": pa.array(
            [None if kind in ("ok", "miss") else f"{kind}!" for kind in kinds], pa.string()
        ),
        "attempts": pa.array([[(key, key + 7, False)] for key in keys], pa.list_(ATTEMPT)),
        "latency_ms": pa.array([0.007] * len(keys), pa.float64()),
        "paused_ms": pa.array([0.0] * len(keys), pa.float64()),
        "source_file": pa.array(["file:///a"] * len(keys), pa.string()),
        "source_row": pa.array([source_of[key] for key in keys], pa.int64()),
        "answered_at": pa.array(
            [2_000 + key if asked[key] in ("ok", "miss") else None for key in keys], pa.int64()
        ),
        "answer_0": pa.array(
            [10 * key if asked[key] == "ok" else None for key in keys], pa.int64()
        ),
    }
    write_keyed(path, pa.table(table))
    return AskedFile(path, hidden=False)


def run(folder, day):
    """All rows of the day as they leave its task, and the keys that were called."""
    draw = random.Random(day["seed"])
    uncached = {} if day["shared"] or not day["idempotent"] else {"cache": None}
    functions = [Function(lambda _: draw.choice([0.0, 0.0, 0.001])) for _ in day["stored"]]
    lookups = [
        lookup(function, name, idempotent=day["idempotent"], retry=Retry(retries=0), **uncached)
        for function, name in zip(functions, NAMES, strict=False)
    ]
    ledgers = []
    for place, (name, stored) in enumerate(zip(NAMES, day["stored"], strict=False)):
        index = f"{folder}/{place}.arrow"
        write_index(index, as_table([stored_answer(key, kind) for key, kind in stored.items()]))
        ledgers.append(
            LedgerPlan(
                f"{folder}/ledger",
                name,
                "f" * 16,
                "r",
                Ttl(),
                200,
                0.01,
                False,
                day["idempotent"],
                index,
            )
        )
    # its last row
    source_of = {key: row for row, (key, _) in enumerate(day["rows"]) if key is not None}
    first = asked_first(f"{folder}/asked.arrow", day["asked"], source_of)
    options = {"event_time": day["event_time"], "bound_ms": day["bound_ms"]}
    planned = dataclasses.replace(
        plan(*lookups, mode=day["mode"], **options, **({"order_key": ("k",)} if day["mode"] == "key_ordered" else {})),
        ledgers=tuple(ledgers), asked_first=(first, None)[: len(lookups)], may_call=day["may_call"],
    )  # fmt: skip
    given_batches = []
    for start, stop in itertools.pairwise(day["edges"]):
        keys, times = zip(*day["rows"][start:stop], strict=True)
        micros = [None if ms is None else 1000 * ms for ms in times]
        given_batches.append(batch(start, stop - start, keys=keys, times=micros))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(known_outcomes, "ANSWER_BYTES", day["answer_bytes"])
        left = in_time(lambda: list(PartitionRun(planned, 0, 0).run(iter(given_batches))))
    return [row for batch in left for row in batch.to_pylist()], functions


def expected(day, place, number):
    """Of one row at one lookup: status, source, answer, µs of the answer, its attempts; None where
    a call decides.
    """
    key, _ = day["rows"][number]
    if key is None:
        return "skipped", None, None, None, []
    last = max(row for row, (other, _) in enumerate(day["rows"]) if other == key)
    if place == 0 and (kind := day["asked"].get(key)) is not None:
        here, answered = number == last, kind in ("ok", "miss")
        source = (
            None if kind == "unknown" or (here and not answered) else "call" if here else "shared"
        )
        attempts = [{"start": key, "end": key + 7, "throttled": False}] if here else []
        return (
            kind,
            source,
            10 * key if kind == "ok" else None,
            2_000 + key if answered else None,
            attempts,
        )
    kind = day["stored"][place].get(key)
    if kind == "asked" and day["idempotent"]:
        kind = None
    if kind is None:
        return None if day["may_call"] else ("not_asked", None, None, None, [])
    status = {"unfit": "error", "asked": "unknown"}.get(kind, kind)
    answer, at = -key if kind == "ok" else None, 1_000 + key if kind in ("ok", "miss") else None
    return status, None if kind == "asked" else "ledger", answer, at, []


def found(row, name):
    at = row[f"{name}_answered_at"]
    answered_at = None if at is None else round(at.timestamp() * 1e6)
    return (
        row[f"{name}_status"],
        row[schema.source(name)],
        row[f"{name}_x"],
        answered_at,
        row[schema.attempts(name)],
    )


@examples(60)
@given(day=days())
def test_rows_with_known_outcomes_leave_with_them_and_other_rows_are_called(tmp_path_factory, day):
    rows, functions = run(tmp_path_factory.mktemp("day"), day)
    assert sorted(row["id"] for row in rows) == list(range(len(day["rows"])))
    for place, (name, function) in enumerate(zip(NAMES, functions, strict=False)):
        to_call = set()
        for row in rows:
            wanted = expected(day, place, row["id"])
            if wanted is None:
                to_call.add(row["k"])
                assert (row[f"{name}_status"], row[f"{name}_x"]) == ("ok", row["k"])
                assert (row[schema.source(name)] == "shared") == (row[schema.attempts(name)] == [])
            else:
                assert found(row, name) == wanted
                assert (row[schema.error(name)] is None) == (
                    wanted[0] not in ("error", "timeout", "unknown")
                )
                assert row[schema.latency_ms(name)] == (0.007 if wanted[4] else None)
                assert row[schema.paused_ms(name)] == (0.0 if wanted[4] else None)
        assert function.calls >= len(to_call)
        assert function.calls == len(to_call) or (day["idempotent"] and not day["shared"])
    check_order(day, rows)


def check_order(day, rows):
    numbers = [row["id"] for row in rows]
    assert [row[schema.INPUT_SEQ] for row in rows] == numbers
    assert [row[schema.OUTPUT_SEQ] for row in rows] == list(range(len(rows)))
    generator = WatermarkStrategy.for_bounded_out_of_orderness(
        day["bound_ms"] / 1000
    ).create_watermark_generator()
    segment, by_row = 0, []
    for _, time in day["rows"]:
        time = time if day["event_time"] else None  # noqa: PLW2901
        by_row.append((segment, generator.is_late(time)))
        segment += generator.on_record(time) is not None
    assert [(row[schema.SEGMENT], row[schema.LATE]) for row in rows] == [
        by_row[number] for number in numbers
    ]
    segments = [row[schema.SEGMENT] for row in rows]
    assert segments == sorted(segments)
    if day["mode"] == "ordered":
        assert numbers == sorted(numbers)
    elif day["mode"] == "key_ordered":
        for _, of_key in itertools.groupby(
            sorted(rows, key=order_of), key=lambda row: order_of(row)[:2]
        ):
            within = [row["id"] for row in of_key]
            assert within == sorted(within)


def order_of(row):
    return row[schema.SEGMENT], str(row["k"]), row[schema.OUTPUT_SEQ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
def test_known_rows_in_slices_leave_as_the_same_rows_one_by_one(tmp_path, monkeypatch, mode, seed):
    draw = random.Random(seed)
    day = {
        "rows": [(draw.choice([None, *range(60)]), draw.randrange(n, n + 40)) for n in range(600)],
        "edges": [0, 70, 300, 301, 600], "event_time": "at", "bound_ms": 5, "mode": mode,
        "seed": seed, "shared": True, "answer_bytes": 64 << 20,
        "stored": [dict.fromkeys(range(58), "ok"), dict.fromkeys(range(3, 60), "miss")],
        "asked": {9: "ok"}, "may_call": True, "idempotent": True,
    }  # fmt: skip
    (tmp_path / "slices").mkdir()
    slices, _ = run(tmp_path / "slices", day)
    monkeypatch.setattr(
        RowElements, "_find_single", lambda _, batch: np.ones(batch.carried.num_rows, np.bool_)
    )
    (tmp_path / "rows").mkdir()
    by_row, _ = run(tmp_path / "rows", day)
    check_order(day, slices)
    check_order(day, by_row)
    assert sorted(map(what_is_known, slices)) == sorted(map(what_is_known, by_row))


def what_is_known(row):
    """All of a row but where it left, and the times of calls."""
    timed = (schema.OUTPUT_SEQ, *("_attempts", "_latency_ms", "_paused_ms", "_answered_at"))
    return str({name: value for name, value in row.items() if not name.endswith(timed)})


def test_in_ordered_mode_known_rows_wait_only_for_a_slow_call_before_them(tmp_path):
    function = Function(lambda _: 0.2)
    ledger = with_known(tmp_path, range(1, 100))
    planned = dataclasses.replace(plan(lookup(function), mode="ordered"), ledgers=(ledger,))
    rows = in_time(
        lambda: [b.to_pylist() for b in PartitionRun(planned, 0, 0).run(iter([batch(0, 100)]))]
    )
    assert [row["id"] for batch_rows in rows for row in batch_rows] == list(range(100))
    unordered = dataclasses.replace(plan(lookup(function)), ledgers=(ledger,))
    rows = in_time(
        lambda: [b.to_pylist() for b in PartitionRun(unordered, 1, 0).run(iter([batch(0, 100)]))]
    )
    assert [row["id"] for batch_rows in rows for row in batch_rows] == [*range(1, 100), 0]


def with_known(folder, keys, kind="ok"):
    index = f"{folder}/index.arrow"
    write_index(index, as_table([stored_answer(key, kind) for key in keys]))
    return LedgerPlan(f"{folder}/ledger", "first", "f" * 16, "r", Ttl(), 200, 0.01, index=index)


@pytest.mark.parametrize(
    ("policy", "kind", "message"),
    [
        ("on_miss", "miss", "a row ended as miss; on_miss is 'fail'"),
        ("on_error", "error", "a row ended as error (no 5); on_error is 'fail'"),
        (
            "on_error",
            "asked",
            (
                "a row ended as unknown (run before asked at 1970-01-01 00:00:00 UTC, and its answer is "
                f"lost; {schema.NOT_REPEATED} (idempotent=False), unless `tidegate refresh` with "
                "stored.outcome = 'asked' lets it); on_error is 'fail'"
            ),
        ),
        ("on_null_key", None, "a key is null, and on_null_key is 'fail'"),
    ],
)
def test_a_known_row_fails_the_run_if_its_policy_says_so_and_is_named(
    tmp_path, policy, kind, message
):
    keys = [1, 2, None, 4] if kind is None else [1, 5, 2]
    stored = [stored_answer(key, "ok") for key in (1, 2, 4)] + (
        [stored_answer(5, kind)] if kind else []
    )
    write_index(f"{tmp_path}/mixed.arrow", as_table(stored))
    ledger = dataclasses.replace(with_known(tmp_path, []), index=f"{tmp_path}/mixed.arrow")
    retry, is_repeatable = Retry(retries=0), kind != "asked"
    first = lookup(Function(), idempotent=is_repeatable, retry=retry, **{policy: "fail"})
    ledger = dataclasses.replace(ledger, idempotent=first.idempotent)
    planned = dataclasses.replace(plan(first), ledgers=(ledger,))
    number = keys.index(None if kind is None else 5)
    with pytest.raises(RowFailed) as failed:
        in_time(
            lambda: list(PartitionRun(planned, 0, 0).run(iter([batch(0, len(keys), keys=keys)])))
        )
    assert str(failed.value) == (
        f"lookup first: {message}. It is row {number} of file:///a (the first is 0)."
    )


def test_answers_beyond_the_mapped_limit_are_mapped_again(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.task.rows.ledger_hits.MAPPED_BYTES", 2_000)
    planned = dataclasses.replace(
        plan(lookup(Function())), ledgers=(with_known(tmp_path, range(1000)),)
    )
    keys = [random.Random(n).randrange(1000) for n in range(3000)]
    given_batches = [batch(n, 100, keys=keys[n : n + 100]) for n in range(0, 3000, 100)]
    rows = in_time(
        lambda: [
            row
            for b in PartitionRun(planned, 0, 0).run(iter(given_batches))
            for row in b.to_pylist()
        ]
    )
    assert [row["first_x"] for row in sorted(rows, key=lambda row: row["id"])] == [
        -key for key in keys
    ]


def test_a_task_brings_few_large_answers_into_memory_at_once(tmp_path, monkeypatch):
    rows, size, asked_for = 600, 20_000, []
    find = LedgerHits.find

    def noted(hits, texts, *others):
        asked_for.append(len(texts))
        return find(hits, texts, *others)

    monkeypatch.setattr(known_outcomes, "ANSWER_BYTES", 1 << 20)
    monkeypatch.setattr(LedgerHits, "find", noted)
    answers = [
        StoredAnswer(key_text((key,)), "ok", dump({"first_x": key, "page": "x" * size}), 1, "b")
        for key in range(rows)
    ]
    index = f"{tmp_path}/index.arrow"
    write_index(index, as_table(answers))
    ledger = LedgerPlan(f"{tmp_path}/ledger", "first", "f" * 16, "r", Ttl(), 200, 0.01, index=index)
    planned = dataclasses.replace(plan(lookup(Function()), mode="ordered"), ledgers=(ledger,))
    left = in_time(lambda: list(PartitionRun(planned, 0, 0).run(iter([batch(0, rows)]))))
    assert [row["first_x"] for batch in left for row in batch.to_pylist()] == list(range(rows))
    assert max(asked_for) * size <= 1 << 20
