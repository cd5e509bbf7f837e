"""A key that Python cannot hold costs its row, and the day can be published and looked at."""

import json

import pyarrow as pa
import pytest

from tests.jobs.commands.test_personal_values import printed

DAY = "2013-01-10"
LATE = pa.array([253_402_318_800_000_007, 0, None], pa.timestamp("us", "UTC"))
SHOWN = "10000-01-01 05:00:00.000007"
COLUMNS = {
    "a time with a zone": (LATE, f"outside the years 1 to 9999: {SHOWN}Z"),
    "a time": (LATE.cast(pa.timestamp("us")), f"outside the years 1 to 9999: {SHOWN}"),
    "a date": (LATE.cast(pa.date32()), "outside the years 1 to 9999: 10000-01-01"),
    "a text": (
        pa.array([b"caf\xe9", b"ok", None], pa.binary()).view(pa.string()),
        "not UTF-8 text: b'caf\\xe9'",
    ),
}


@pytest.mark.parametrize(("column", "reason"), COLUMNS.values(), ids=COLUMNS)
def test_a_key_that_python_cannot_hold_costs_its_row(local_days, capsys, column, reason):
    local_days.towns.declare_too(
        "weather = replace(weather, keys={'at': 'at'}, request='GET /v1/{at}',",
        "    on_error='dead_letter')",
        "towns = replace(towns, summaries=[], lookups=[weather], tolerance=Tolerance(error=1.0))",
    )
    local_days.write_input(DAY, ["a", "b", "c"], at=column)
    assert local_days.run(DAY) == 0
    assert f"key at is {reason}" in printed(capsys, "dead-letters", "towns", "--each")
    explained = json.loads(printed(capsys, "explain", "towns", "--row", "number=0", "--json"))
    assert reason in json.dumps(explained, ensure_ascii=False).replace("\\\\", "\\")
    assert reason in printed(capsys, "try", "towns", "--day", DAY)
    printed(capsys, "forget", "weather", "--key", "at=nobody")
    assert "0 of them stored" in printed(capsys, "forget", "weather", "--key", "at=nobody")


@pytest.mark.parametrize("name", ["am-tag", "größe", "at which"])
def test_a_key_of_any_name_that_python_cannot_hold_holds_no_day_back(local_days, name):
    local_days.towns.declare_too(
        f"weather = replace(weather, keys={{{name!r}: 'at'}}, request='GET /v1/{{{name}}}')",
        "towns = replace(towns, summaries=[], lookups=[weather], tolerance=Tolerance(error=1.0))",
    )
    local_days.write_input(DAY, ["a", "b", "c"], at=COLUMNS["a time"][0])
    assert local_days.run(DAY) == 0


def test_a_dead_letter_is_a_line_whatever_its_row_id_contains(local_days, capsys):
    at, _ = COLUMNS["a time"]
    local_days.towns.declare_too(
        "weather = replace(weather, keys={'at': 'at'}, request='GET /v1/{at}',",
        "    on_error='dead_letter')",
        "towns = replace(towns, input=replace(towns.input, row_id=['note']),",
        "    summaries=[], lookups=[weather], tolerance=Tolerance(error=1.0))",
    )
    local_days.write_input(DAY, ["a", "b", "c"], at=at, note=pa.array(["two\nlines", "b", "c"]))
    assert local_days.run(DAY) == 0
    first, last = printed(capsys, "dead-letters", "towns", "--each").splitlines()
    assert "  note=two lines  " in first
    assert last.startswith(f"{DAY}  1 dead letter ")
