"""Drift of a vendor's answers: planted drifts are found, and honest days raise no alarm."""

import datetime as dt
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data_quality.rows.answer_sketch import largest_change, sketch_answers
from jobs.schema.records import LookupFacts

COLUMNS = {
    "score": ("DOUBLE", 0.05),  # type, share of nulls
    "price": ("DOUBLE", 0.2),
    "industry": ("STRING", 0.1),
    "name": ("STRING", 0.0),
    "seen_at": ("TIMESTAMP", 0.0),
    "is_public": ("BOOLEAN", 0.1),
    "employees": ("INT", 0.15),
}
LOOKUP = LookupFacts(
    "firm",
    "http",
    "vendor",
    tuple((name, kind) for name, (kind, _) in COLUMNS.items()),
    timeout=None,
    max_concurrency=1,
)
INDUSTRIES = np.array(["retail", "bank", "tech", "food", "health"])
START, TOLERATED = dt.date(2026, 1, 1), 0.05


def answers(draw, day, count):
    """Answers of an honest vendor, whose customers are others at weekends."""
    weekend = day.weekday() >= 5
    shares = [0.4, 0.15, 0.15, 0.2, 0.1] if weekend else [0.3, 0.25, 0.15, 0.2, 0.1]
    lengths = draw.normal(22, 6, count).clip(3, 60).astype(int)
    seconds = draw.normal(12 * 3600, 2 * 3600, count).clip(0, 86_399)
    values = {
        "score": draw.normal(53 if weekend else 50, 10, count),
        "price": np.exp(draw.normal(3, 1, count)),
        "industry": INDUSTRIES[draw.choice(5, count, p=shares)],
        "name": np.array([f"{number:x<{size}}" for number, size in enumerate(lengths)]),
        "seen_at": np.datetime64(day, "us") + (seconds * 1e6).astype("timedelta64[us]"),
        "is_public": draw.random(count) < 0.2,
        "employees": np.exp(draw.normal(4, 1.5, count)).astype(np.int32),
    }
    masks = {name: draw.random(count) < null for name, (_, null) in COLUMNS.items()}
    return pa.table({name: pa.array(values[name], mask=masks[name]) for name in values})


def changed(name, change):
    """Return what plants a change in a column."""

    def plant(table, draw):
        column = change(table[name].combine_chunks(), draw)
        return table.set_column(table.column_names.index(name), name, column)

    return plant


def sometimes(share, value):
    return lambda column, draw: pc.if_else(
        pa.array(draw.random(len(column)) < share), pa.scalar(value, column.type), column
    )


def exchanged(table, _draw):
    names = {"score": "price", "price": "score"}
    return table.select([names.get(name, name) for name in table.column_names]).rename_columns(
        table.column_names
    )


PLANTED = {
    "more nulls": changed("score", sometimes(0.2, None)),
    "all null": changed("score", sometimes(1, None)),
    "no nulls": changed("employees", lambda column, _: pc.fill_null(column, 0)),
    "mean shift": changed("score", lambda column, _: pc.add(column, 10)),
    "scale": changed("price", lambda column, _: pc.multiply(column, 2)),
    "new category": changed("industry", sometimes(0.15, "crypto")),
    "category share": changed("industry", sometimes(0.4, "tech")),
    "constant": changed("price", sometimes(1, 19.99)),
    "exchanged columns": exchanged,
    "other unit": changed("price", lambda column, _: pc.multiply(column, 100)),
    "truncated text": changed("name", lambda column, _: pc.utf8_slice_codeunits(column, 0, 20)),
    "time shift": changed(
        "seen_at", lambda column, _: pc.subtract(column, pa.scalar(dt.timedelta(hours=2)))
    ),
    "sign": changed("score", lambda column, _: pc.negate(column)),
    "width": changed(
        "score", lambda column, _: pc.add(pc.multiply(pc.subtract(column, 50), 2), 50)
    ),
    "upper case": changed("industry", lambda column, _: pc.utf8_upper(column)),
    "flag set": changed("is_public", sometimes(0.3, True)),
}


def days(draw, count, *, small):
    """Yield days and the number of their answers; every fourth day is small."""
    for number in range(count):
        day = START + dt.timedelta(days=number)
        yield day, 100 if small and number % 4 == 3 else 700 if day.weekday() >= 5 else 2000


def history(seed, count, *, small=False):
    draw = np.random.default_rng(seed)
    made = [(day, answers(draw, day, size)) for day, size in days(draw, count, small=small)]
    return [sketch_answers([table], LOOKUP, day.isoformat()) for day, table in made]


@pytest.mark.parametrize(
    "made",
    [
        lambda number: {"score": float(number)},  # increases day by day
        lambda number: {"name": f"batch {number // 200}"},
        lambda number: {"seen_at": dt.datetime(2020, 1, 1)},  # noqa: DTZ001  # a fixed time
    ],
    ids=["increasing numbers", "another text on each day", "a fixed time"],
)
def test_values_that_always_differ_raise_no_alarm(made):
    sketches = []
    for number in range(36):
        day = START + dt.timedelta(days=number)
        table = answers(np.random.default_rng(number), day, 200)
        for name in made(0):
            values = [made(number * 200 + line)[name] for line in range(200)]
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(values, table[name].type))
        sketches.append(sketch_answers([table], LOOKUP, day.isoformat()))
    for number in range(28, 36):
        assert not drifted(sketches[number], sketches[number - 28 : number])


def drifted(sketch, before):
    return {
        name
        for name in COLUMNS
        if largest_change(sketch[name], [earlier[name] for earlier in before], TOLERATED).excess > 0
    }


@pytest.fixture(scope="module")
def usual():
    return history(1, 28)


@pytest.mark.parametrize("drift", PLANTED)
def test_a_planted_drift_is_found(drift, usual):
    draw, day = np.random.default_rng(2), START + dt.timedelta(days=28)
    honest = answers(draw, day, 2000)
    assert not drifted(sketch_answers([honest], LOOKUP, day.isoformat()), usual)
    wrong = PLANTED[drift](honest, draw)
    assert drifted(sketch_answers([wrong], LOOKUP, day.isoformat()), usual)


@pytest.mark.parametrize(
    ("drift", "name", "words"),
    [
        ("mean shift", "score", r"are at most \d\d\.\d+"),
        ("time shift", "seen_at", r"are at most 2026-01-29 \d\d:\d\d.*"),
    ],
)
def test_a_drift_of_times_is_reported_as_a_time_and_of_numbers_as_a_number(
    drift, name, words, usual
):
    draw, day = np.random.default_rng(2), START + dt.timedelta(days=28)
    wrong = PLANTED[drift](answers(draw, day, 2000), draw)
    sketch = sketch_answers([wrong], LOOKUP, day.isoformat())
    change = largest_change(sketch[name], [earlier[name] for earlier in usual], TOLERATED)
    assert re.fullmatch(words, change.what)


@pytest.mark.parametrize(
    ("seed", "later"),
    [(3, 12), *(pytest.param(seed, 50, marks=pytest.mark.proof) for seed in range(4, 14))],
)
def test_honest_days_of_changing_size_raise_no_alarm(seed, later):
    sketches = history(seed, 28 + later, small=True)
    for number in range(28, len(sketches)):
        assert not drifted(sketches[number], sketches[number - 28 : number]), number


def test_a_personal_lookup_leaves_no_text_in_the_record():
    table = answers(np.random.default_rng(1), START, 500)
    found = sketch_answers([table], replace(LOOKUP, hidden_key=True), START.isoformat())
    assert not any(sketch["texts"] for sketch in found.values())
    assert found["name"]["points"]  # its lengths
    assert sketch_answers([table], LOOKUP, START.isoformat())["industry"]["texts"]


def test_texts_with_the_same_long_beginning_count_together_in_any_order():
    long = [f"{'x' * 60}{end}" for end in "ab"]
    texts = pa.array([long[0]] * 70 + [long[1]] * 30)
    lookup = replace(LOOKUP, returns=(("url", "STRING"),))
    for column in (texts, texts.take(pa.array(range(99, -1, -1)))):
        (sketch,) = sketch_answers([pa.table({"url": column})], lookup, "2026-01-01").values()
        assert sketch["texts"] == {"x" * 60: 1.0}
