"""Faults by a generator: values of two rows exchanged, for every pair of outcomes and sources, and
columns retyped.
"""

import datetime as dt
import itertools
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_outcome import KINDS, every_outcome_day
from honest_day import INPUT_FIELDS, ROW_FIELDS
from odd_days import KINDS as TYPES
from pyspark.sql.pandas.types import from_arrow_schema

from data_quality.catalogue import checks
from data_quality.judging import Judging
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from tests.support.variants import first_of

AUDIT = list(schema.audit_columns("weather"))
PUBLISHED = [column.name for column in schema.published_columns("weather")]
ANSWER, KEY = ["temp_c", "visibility_m"], ["_weather_key"]
CARRIED, ROW = [name for name, _ in INPUT_FIELDS], [name for name, _ in ROW_FIELDS]
COLUMNS = [*CARRIED, *ROW, *KEY, *AUDIT, *PUBLISHED, *ANSWER]
CALLS = ["_weather_attempts", "_weather_latency_ms", "_weather_paused_ms"]
# what is exchanged: single columns, and columns that one mistake would exchange together
CROSSED = {name: [name] for name in COLUMNS if name != "_partition"} | {  # one task: all are alike
    "statuses": ["_weather_status", "weather_status"],
    "source and calls": ["_weather_source", *CALLS],
    "calls": CALLS,
    "calls and time": [*CALLS, "weather_answered_at"],
    "answer": ANSWER,
    "answer and time": [*ANSWER, "weather_answered_at"],
    "published": [*PUBLISHED, *ANSWER],
    "audit": AUDIT,
    "all but the key": [*AUDIT, *PUBLISHED, *ANSWER],
    "all but the row": [*KEY, *AUDIT, *PUBLISHED, *ANSWER],
    "row identity": ["_source_file", "_source_row"],
}  # fmt: skip
OUTCOMES = {name: outcome for name, outcome, _, _ in KINDS}
SOURCES = {name: source for name, _, source, _ in KINDS}
PAIRS = list(itertools.combinations_with_replacement(OUTCOMES, 2))
NOT_COUNTED = {"input_day_complete", "weather__calls_reconciled"}
OF_EVENT_TIME = {"late_rows_marked", "watermarks_not_crossed"}
OTHER_TYPES = (
    pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary(),
    pa.timestamp("us", "UTC"), pa.list_(pa.int64()), pa.decimal128(20, 3), pa.null(),
)  # fmt: skip


def judge(day, facts, figures, table=None):
    """The findings by check, without Spark and Great Expectations."""
    make = WrittenDay.of_run if table is None else WrittenDay.of_table
    written = make(
        None, facts, *([] if table is None else [table]), metrics=figures, stored=day.ledger()
    )
    return Judging([spec.check for spec in checks(facts.declared)], written).findings()


def reds(findings):
    """The failed checks. None breaks: the only ones that do not run lack what this day has no
    counts of, or rows whose loss another check finds.
    """
    red = {name: found for name, found in findings.items() if found.success is False}
    unjudged = NOT_COUNTED | (OF_EVENT_TIME if red else set())
    assert {name for name, found in findings.items() if found.success is None} <= unjudged
    return red


def rows_named(found, rows):
    """The places of the rows in the evidence: by their row of the input, else by their row_id and
    place.
    """
    named = set()
    for evidence in (row for finding in found.values() for row in finding.evidence):
        by = (
            ("_source_row", "_output_seq")
            if "_source_row" in evidence
            else ("flight", "_output_seq")
        )
        wanted = {name: evidence[name] for name in by if name in evidence}
        named |= {place for place, row in enumerate(rows) if wanted.items() <= row.items()}
    return named


def may_be_true(crossed, one, other):
    """Whether both rows are still rows that a run may write, since nothing but themselves says what
    became of them.
    """
    both = {OUTCOMES[one], OUTCOMES[other]}
    unanswered = both <= {"timeout", "error", "unknown", "not_asked", "fallback"}
    if crossed == "audit" and both == {"ok"}:
        return _waited(one) and _waited(other)
    if crossed in (
        "all but the key",
        "published",
        "audit",
        "answer",
        *ANSWER,
        "answer and time",
        *PUBLISHED[1:],
    ):
        return unanswered
    if crossed in ("source and calls", "calls", "calls and time", *CALLS, "_weather_error"):
        return unanswered or _waited(one) or _waited(other) or crossed == "_weather_paused_ms"
    # of a stored error, and of another row's
    return crossed == "_weather_source" and both == {"error"}


def _waited(kind):
    """Whether a row's own calls, if it made any, say nothing of its answer."""
    return SOURCES[kind] == "shared" or OUTCOMES[kind] == "fallback"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    day, kinds = every_outcome_day(tmp_path_factory.mktemp("crossed"))
    facts, figures = day.write()
    return day, kinds, facts, figures


def crossings(kinds, pairs):
    first = {kind: kinds.index(kind) for kind in OUTCOMES}
    last = {kind: len(kinds) - 1 - kinds[::-1].index(kind) for kind in OUTCOMES}
    for one, other in pairs:
        yield one, other, first[one], last[other]


def assert_seen(written, pairs):
    day, kinds, facts, figures = written
    table = pa.concat_tables(day.outputs.values())
    rows = table.to_pylist()
    missed, planted = [], 0
    for (one, other, here, there), (what, columns) in itertools.product(
        crossings(kinds, pairs), CROSSED.items()
    ):
        changed = [dict(row) for row in rows]
        for column in columns:
            changed[here][column], changed[there][column] = rows[there][column], rows[here][column]
        if changed == rows or may_be_true(what, one, other):
            continue
        planted += 1
        found = reds(judge(day, facts, figures, pa.Table.from_pylist(changed, table.schema)))
        named = rows_named(found, changed)
        others = named - {here, there} if what not in ("departure", "_input_seq") else set()
        if not found or not named & {here, there} or others:
            missed.append((what, one, other, sorted(found), sorted(named), (here, there)))
    assert not missed, (len(missed), planted, missed[:20])
    return planted


def test_values_exchanged_between_rows_are_found_and_the_rows_are_named(written):
    assert assert_seen(written, random.Random(25).sample(PAIRS, 1)) > 15


@pytest.mark.proof
@pytest.mark.parametrize("kind", OUTCOMES)
def test_values_exchanged_between_any_two_outcomes_and_sources_are_found(written, kind):
    assert assert_seen(written, [pair for pair in PAIRS if pair[0] == kind]) > 5


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 50), marks=pytest.mark.proof)])
def test_honest_days_with_every_outcome_from_every_source_raise_no_alarm(tmp_path, seeds):
    for seed in seeds:
        day, _ = every_outcome_day(tmp_path / str(seed), copies=1 + seed % 3, seed=seed)
        facts, figures = day.write()
        assert reds(judge(day, facts, figures)) == {}, seed


def retyped(table, name, kind):
    """The table with a column of another type: the same values where they can be cast, else
    nulls.
    """
    try:
        values = table[name].cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = pa.nulls(len(table), kind)
    return table.set_column(table.schema.get_field_index(name), pa.field(name, kind), values)


def assert_types_seen(written, tmp_path, cases):
    day, _, facts, figures = written
    names = list(day.outputs)
    for number, (name, kind, whole) in enumerate(cases):
        if day.outputs[names[0]].schema.field(name).type == kind:
            continue
        files = []
        for file, table in day.outputs.items():
            files.append(str(tmp_path / f"{number}-{file}"))
            changed = retyped(table, name, kind) if whole or file == names[-1] else table
            pq.write_table(changed, files[-1])
        found = reds(judge(day, replace(facts, files=tuple(files)), figures))
        errors = {check.name for check in checks(facts.declared) if check.severity == "error"}
        assert found.keys() & errors, (name, str(kind), whole)


EVERY_TYPE = list(itertools.product(COLUMNS, OTHER_TYPES, (True, False)))


def test_a_column_of_another_type_turns_checks_red_and_breaks_none(written, tmp_path):
    assert_types_seen(written, tmp_path, random.Random(8).sample(EVERY_TYPE, 10))


@pytest.mark.proof
def test_each_column_with_any_other_type_in_a_file_or_in_all_files_turns_a_check_red(
    written, tmp_path
):
    assert_types_seen(written, tmp_path, EVERY_TYPE)


def test_a_text_column_that_became_a_list_turns_checks_red(written, tmp_path):
    """Parquet's reader takes no dictionary of it."""
    cases = [
        (name, pa.list_(pa.int64()), whole)
        for name in ("_source_file", "_weather_source")
        for whole in (True, False)
    ]
    assert_types_seen(written, tmp_path, cases)


@pytest.mark.parametrize("mode", ["unordered", "ordered"])
def test_a_row_with_several_faults_counts_once(written, mode):
    day, _, facts, figures = written
    table = pa.concat_tables(day.outputs.values())
    for name in ("_segment", "_output_seq", "_input_seq"):
        table = with_column(table, name, pa.nulls(len(table), pa.int64()))
    declared = replace(facts.declared, mode=mode)
    found = reds(judge(day, replace(facts, declared=declared), figures, table))
    assert {"watermarks_not_crossed", *["order_held"] * (mode == "ordered")} <= set(found)
    for name, finding in found.items():
        assert finding.unexpected_count <= finding.element_count, name


def test_a_missing_column_turns_checks_red(written):
    day, _, facts, figures = written
    for name in COLUMNS:
        table = pa.concat_tables(day.outputs.values()).drop_columns([name])
        assert reds(judge(day, facts, figures, table)), name


def with_column(table, name, values):
    return table.set_column(table.schema.get_field_index(name), pa.field(name, values.type), values)


def distinct_values(kind, draw, count):
    """Values of a type as Spark has it; nulls where it has none of so many different ones."""
    dice, found = random.Random(str(kind)), {}
    for value in (draw(dice) for _ in range(40 * count)):
        found.setdefault(repr(value), value)
    values = list(found.values())[:count]
    values += [None] * (count - len(values))
    values = [
        value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and kind.tz else value
        for value in values
    ]
    return pa.array(values, kind)


UNSIGNED = {"small_u", "big_u", "counts"}  # Spark reads them as other types


@pytest.mark.parametrize("name", first_of(sorted(TYPES.keys() - UNSIGNED), 6))
def test_values_of_every_type_exchanged_between_rows_are_found(written, tmp_path, name):
    """As a carried column of the input, and as a column of the answer that the ledger has."""
    day, kinds, facts, figures = written
    arrow, draw = TYPES[name]
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    spark = from_arrow_schema(pa.schema([("value", arrow)]), prefer_timestamp_ntz=True)
    kind = schema.arrow_schema(spark).field("value").type
    table = pa.concat_tables(day.outputs.values())
    flights = table["flight"].to_pylist()
    here, there = [
        place
        for place, of in enumerate(kinds)
        if of == "ok by call" and flights.count(flights[place]) == 1
    ][:2]
    values = distinct_values(arrow, draw, 2).cast(kind)
    exchanged = values.take(pa.array([1, 0]))
    assert values != exchanged
    places = pa.array([{here: 0, there: 1}.get(place) for place in range(len(kinds))], pa.int64())

    given = day.inputs["part-00000.parquet"].append_column("value", values.take(places))
    pq.write_table(given, tmp_path / "part-00000.parquet")
    carried = replace(
        facts,
        input_files=(str(tmp_path / "part-00000.parquet"),),
        input_types=from_arrow_schema(given.schema, prefer_timestamp_ntz=True).json(),
    )
    source = pa.array([str(tmp_path / "part-00000.parquet")] * len(table))
    moved = with_column(table, "_source_file", source)
    assert (
        reds(judge(day, carried, figures, moved.append_column("value", values.take(places)))) == {}
    )
    wrong = moved.append_column("value", exchanged.take(places))
    found = reds(judge(day, carried, figures, wrong))
    assert list(found) == ["input_unchanged"]
    assert rows_named(found, wrong.to_pylist()) == {here, there}
    if name in ("lasted", "by_number"):  # no answer has a duration or a map
        return

    (lookup,) = facts.declared.lookups
    returns = (("temp_c", spark["value"].dataType.simpleString()), ("visibility_m", "INT"))
    lookup = replace(lookup, returns=returns, ranges=(), null_share=())
    answered = replace(facts, declared=replace(facts.declared, lookups=(lookup,)))
    of_day = replace(day, declared=answered.declared, stored={})
    of_day.outputs = {"all": with_column(table, "temp_c", values.take(places))}
    of_day.keep_answers()
    assert reds(judge(of_day, answered, figures, of_day.outputs["all"])) == {}
    wrong = with_column(table, "temp_c", exchanged.take(places))
    found = reds(judge(of_day, answered, figures, wrong))
    assert list(found) == ["weather__answers_match"]
    assert rows_named(found, wrong.to_pylist()) == {here, there}
