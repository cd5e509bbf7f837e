"""`diff`: judged by a model that compares rows as dicts, on random versions of a day."""

import datetime as dt
import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.diffing.day_version import DayVersion
from jobs.commands.diffing.diff import EXAMPLES, compare, diff
from jobs.schema import columns as schema
from jobs.tables.records import run_records
from tests.jobs.commands.conftest import as_written
from tidegate.__main__ import main

DAY = "2013-01-10"
STATUSES = ("ok", "miss", "error")
NAN = float("nan")


def version(towns, draw, rows, run_id, monkeypatch):
    """A published version: rows are number -> (temp_c, status), in several files and any order."""
    numbers = draw.sample([*rows], len(rows))

    def written(numbers, _statuses):
        table = as_written(numbers, [rows[number][1] for number in numbers])
        temps = pa.array([rows[number][0] for number in numbers], pa.float64())
        return table.set_column(table.schema.get_field_index("temp_c"), "temp_c", temps)

    monkeypatch.setattr("tests.jobs.commands.conftest.as_written", written)
    return towns.publish(DAY, numbers, run_id=run_id)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.proof) for n in range(1, 9))]
)
def test_diff_agrees_with_a_model_and_is_the_same_each_time(towns, monkeypatch, seed):
    draw = random.Random(seed)

    def drawn():
        temp = draw.choice([None, NAN, 0.0, -0.0, 1.5, 2.5])
        return temp, draw.choice(STATUSES)

    before = {number: drawn() for number in draw.sample(range(60), 40)}
    after = {number: drawn() if draw.random() < 0.4 else row for number, row in before.items()}
    after = {number: row for number, row in after.items() if draw.random() < 0.9}
    after |= {number: drawn() for number in draw.sample(range(60, 80), 5)}
    for number, (run_id, rows) in enumerate({"first": before, "second": after}.items()):
        assert version(towns, draw, rows, run_id, monkeypatch).published_version == number
    found = diff(towns.enrichment, DAY)
    both = before.keys() & after.keys()
    cells = Counter()
    for number in both:
        old, new = before[number], after[number]
        bits = [json.dumps(one[0]) for one in (old, new)]  # -0.0 is not 0.0
        cells["temp_c"] += bits[0] != bits[1]
        cells["weather_status"] += old[1] != new[1]
    changed = [name for name in both if str(before[name]) != str(after[name])]
    assert (found.added, found.removed) == (len(after) - len(both), len(before) - len(both))
    assert found.changed == len(changed)
    assert found.unchanged == len(both) - len(changed)
    assert {change.column: change.cells for change in found.columns} == {
        k: v for k, v in cells.items() if v
    }
    for column in found.columns:
        place = {"temp_c": 0, "weather_status": 1}[column.column]
        assert len(column.examples) == min(EXAMPLES, column.cells)
        for example in column.examples:
            number = example["row"]["number"]
            olds = str(before[number][place]), str(after[number][place])
            assert (str(example["from"]), str(example["to"])) == olds
    for side, rows in ((found.before, before), (found.after, after)):
        assert side.outcomes["weather"] == Counter(status for _, status in rows.values())
    assert diff(towns.enrichment, DAY, "0", "1").to_json() == found.to_json()
    assert diff(towns.enrichment, DAY, "first", "second") == found
    back = diff(towns.enrichment, DAY, "1", "0")
    assert (back.added, back.removed, back.changed) == (found.removed, found.added, found.changed)


def test_a_held_back_run_is_compared_with_what_readers_see(towns, capsys):
    towns.publish(DAY, [1, 2, 3])
    red = towns.written(DAY, [1, 2, 3, 4], "red", {2: "error"})
    run_records.hold_back(red, "too many errors")
    arguments = ["diff", "towns", DAY, "--package", "declared", "--from", "0", "--to", "red"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == f"towns  {DAY}"
    assert lines[2].split() == ["version", "0", "never", "published"]
    assert "1 row changed, 1 added, 0 removed, 2 unchanged" in lines
    assert "  number=2 ok -> error" in lines
    assert "added: number=4" in lines
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == 1
    assert found["after"]["version"] is None


def test_diff_prints_a_null_cell_as_null(towns, monkeypatch, capsys):
    draw = random.Random(0)
    version(towns, draw, {1: (None, "ok")}, "first", monkeypatch)
    version(towns, draw, {1: (1.5, "ok")}, "second", monkeypatch)
    assert main(["diff", "towns", DAY, "--package", "declared"]) == 0
    assert "  number=1 null -> 1.5" in capsys.readouterr().out.splitlines()


def test_diff_names_a_new_column_and_hides_personal_values(towns):
    towns.declare(pii=["town"])
    towns.publish(DAY, [1, 2], run_id="first")
    towns.declare(returns="temp_c DOUBLE, sky STRING", pii=["town"])
    second = towns.written(DAY, [1, 2], "second", {1: "miss"})
    (other,) = second.facts.files
    rows = pq.read_table(other)
    towns_ = pa.array(["x", "y"], pa.string())
    rows = rows.set_column(1, "town", towns_).append_column("sky", pa.array(["blue", None]))
    pq.write_table(rows, other)
    run_records.hold_back(second, "for a test")
    found = diff(towns.enrichment, DAY, "0", "second")
    assert found.new_columns == ("sky",)
    changes = {column.column: column for column in found.columns}
    assert changes["town"].cells == 2
    assert {example[side] for example in changes["town"].examples for side in ("from", "to")} == {
        "***"
    }
    assert changes["weather_status"].cells == 1


def test_rows_of_a_batch_from_before_a_lookup_have_no_outcome_of_it(towns, capsys):
    towns.publish(DAY, [1, 2], run_id="first")
    second = towns.written(DAY, [1, 2], "second", {})
    (file,) = second.facts.files
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, 1).drop_columns([schema.published_status("weather")]), file)
    other = file.replace(".parquet", "-later.parquet")
    pq.write_table(rows.slice(1), other)
    facts = replace(second.facts, files=(file, other))
    run_records.hold_back(replace(second, facts=facts), "for a test")
    found = diff(towns.enrichment, DAY, "0", "second")
    assert (found.after.rows, found.after.outcomes["weather"]) == (2, {"ok": 1})
    arguments = ["diff", "towns", DAY, "--package", "declared", "--from", "0", "--to", "second"]
    assert main(arguments) == 0
    assert ["weather", "ok", "2", "1"] in map(str.split, capsys.readouterr().out.splitlines())


def test_answers_of_a_removed_lookup_stay_personal(towns):
    towns.declare(pii=["town"])
    towns.publish(DAY, [1], run_id="first")
    second = towns.written(DAY, [1], "second", {})
    rows = pq.read_table(second.facts.files[0])
    place = rows.column_names.index("temp_c")
    pq.write_table(rows.set_column(place, "temp_c", pa.array([2.5])), second.facts.files[0])
    run_records.hold_back(second, "for a test")
    towns.declare_too(
        "towns = replace(towns, lookups=[",
        "    replace(weather, name='rain', paths={'mm': '$.mm'}, returns='mm DOUBLE')])",
    )
    (change,) = diff(towns.enrichment, DAY, "0", "second").columns
    (example,) = change.examples
    assert (change.column, example["from"], example["to"]) == ("temp_c", "***", "***")


INTEGERS = [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(20, 1), pa.decimal128(21, 2)]
MOMENTS = [pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")]
NUMBERS = [*INTEGERS, pa.float32()]


def versions_of_other_types(folder, draw):
    """Two versions whose rows may repeat a number, each as its rows and its files."""
    rows = [[(draw.randrange(12), draw.randrange(4)) for _ in range(20)] for _ in range(2)]
    kinds = draw.choice([INTEGERS, MOMENTS])
    halves = draw.random() < 0.5
    for name, side in zip(("before", "after"), rows, strict=True):
        types = draw.choice(kinds), draw.choice(NUMBERS)
        step = Decimal("0.5") if halves and not pa.types.is_integer(types[1]) else 1
        side[:] = [(number, temp * step) for number, temp in side]
        files = []
        for place, part in enumerate((side[:7], side[7:])):
            numbers = [number for number, _ in part]
            if kinds is MOMENTS:
                numbers = [dt.datetime.fromtimestamp(number, dt.UTC) for number in numbers]
            columns = [
                pa.array(numbers).cast(types[0]),
                pa.array([float(temp) for _, temp in part]).cast(types[1]),
                pa.nulls(len(part), pa.string()),
                pa.nulls(len(part), pa.int64()),
            ]
            files.append(str(folder / f"{name}-{place}.parquet"))
            pq.write_table(
                pa.table(columns, ["number", "temp_c", *schema.SOURCE_IDENTITY]), files[-1]
            )
        yield side, DayVersion(None, name, tuple(files), None)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.proof) for n in range(6, 60))]
)
def test_diff_compares_rows_of_changed_types_and_repeated_ids_by_value(towns, tmp_path, seed):
    (before, old), (after, new) = versions_of_other_types(tmp_path, random.Random(seed))
    found = compare(towns.enrichment, DAY, old, new)
    ids = [Counter(number for number, _ in side) for side in (before, after)]
    equal = (Counter(before) & Counter(after)).total()
    assert (found.added, found.removed) == ((ids[1] - ids[0]).total(), (ids[0] - ids[1]).total())
    assert found.unchanged == equal
    assert found.changed == (ids[0] & ids[1]).total() - equal
    assert [column.cells for column in found.columns] == [found.changed] * bool(found.changed)
    for cell in (example for column in found.columns for example in column.examples):
        assert cell["from"] != cell["to"]
    for version in (old, new):
        same = compare(towns.enrichment, DAY, version, version)
        assert (same.added, same.removed, same.changed, same.unchanged) == (0, 0, 0, 20)


def test_a_version_before_the_day_was_published_has_no_rows(towns):
    towns.publish("2013-01-09", [1])
    towns.publish(DAY, [1, 2])
    found = diff(towns.enrichment, DAY, "0")
    assert (found.before.rows, found.after.rows) == (0, 2)
    assert (found.added, found.removed, found.changed, found.unchanged) == (2, 0, 0, 0)
    assert [row["number"] for row in found.added_rows] == [1, 2]


def test_rows_are_matched_by_source_if_a_version_lacks_the_row_id(towns, tmp_path):
    def version(name, **columns):
        table = pa.table({**columns, "_source_file": ["x", "x"], "_source_row": [0, 1]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
        return DayVersion(None, name, (str(tmp_path / f"{name}.parquet"),), None)

    old, new = version("old", id=[1, 2]), version("new", number=[1, 2])
    found = compare(towns.enrichment, DAY, old, new)
    assert found.matched_by == schema.SOURCE_IDENTITY
    assert (found.added, found.removed, found.changed, found.unchanged) == (0, 0, 0, 2)
    assert (found.new_columns, found.lost_columns) == (("number",), ("id",))


def test_only_rows_that_share_an_id_are_matched_by_their_source(towns, tmp_path):
    def version(source):
        columns = {"number": [1, 2, None, None], "_source_row": range(4)}
        table = pa.table(columns | {"_source_file": [source] * 4})
        pq.write_table(table, tmp_path / f"{source}.parquet")
        return DayVersion(None, source, (str(tmp_path / f"{source}.parquet"),), None)

    found = compare(towns.enrichment, DAY, version("x"), version("y"))  # written again
    assert (found.added, found.removed, found.changed, found.unchanged) == (2, 2, 0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2013-01-09"], "towns: 2013-01-09 is not published: nothing to compare."),
        ([DAY], "was published once, as version 0; name another version or a run by --from."),
        ([DAY, "--from", "7"], "--from 7: the table has no such version; its last is 0."),
        ([DAY, "--from", "x"], "--from x: it must be a version of the table, or begin the id"),
        (["13-1-9"], "DAY is '13-1-9'; it must be a date"),
    ],
)
def test_versions_that_cannot_be_compared_are_refused_in_one_sentence(
    towns, capsys, arguments, message
):
    towns.publish(DAY, [1])
    assert main(["diff", "towns", "--package", "declared", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
