"""`explain` finds the call behind a cell: judged by the log of a real service and by the input."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.commands.compact import compact
from jobs.commands.expiry import expire_keys
from jobs.commands.explaining.request_text import request_text
from jobs.commands.ledgers import declared_ledgers
from jobs.ledger.keys import key_text
from tidegate import HttpLookup, Service
from tidegate.__main__ import main

DAYS = ("2013-01-10", "2013-01-11")
NAMES = ["a", "b b", "ü%/c", "d.d", "e'e", "null", "[1]"]
PRICED = (
    "from tidegate import Price, Service",
    "towns = replace(towns, lookups=[replace(weather, service=replace(weather.service,",
    "    prices=[Price('0.0040 USD'), Price('0.0050 USD', since='2013-01-01')]))])",
)


@pytest.fixture
def explained(capsys):
    """The JSON object that `explain` prints for a row of towns."""

    def explain(*arguments):
        capsys.readouterr()
        arguments = ["explain", "towns", "--package", "declared", "--json", *arguments]
        assert main(arguments) == 0
        return json.loads(capsys.readouterr().out)

    return explain


def test_a_cell_leads_to_the_call_that_the_service_answered(local_days, service, explained):
    draw = random.Random(3)
    local_days.towns.declare_too(*PRICED)
    inputs = {day: [draw.choice(NAMES) for _ in range(20)] for day in DAYS}
    for day, towns in inputs.items():
        local_days.write_input(day, [f" {town} " for town in towns])
    assert local_days.run(*DAYS) == 0
    answered = {town: (day, answer) for day, town, answer in local_days.calls}
    assert len(answered) == len(local_days.calls)
    paths = {town: service.log[place] for place, (_, town, _) in enumerate(local_days.calls)}
    for day, number in [(day, number) for day in DAYS for number in draw.sample(range(20), 2)]:
        town = inputs[day][number]
        found = explained("--row", f"number={number}", "--day", day, "--column", "temp_c")
        (weather,) = found["lookups"]
        asked_on, answer = answered[town]
        assert json.loads(weather["response"]) == answer
        assert weather["columns"] == {"temp_c": answer["temp_c"]}
        assert weather["key"] == {"town": town}
        assert weather["request"] == f"GET {paths[town]}"
        assert weather["run_of"] == f"towns {asked_on}"
        assert (weather["source"] == "ledger") == (asked_on != day)
        assert weather["price"] == "0.0050 USD per item"
        others = [other for other, name in enumerate(inputs[day]) if name == town]
        others.remove(number)
        assert weather["used_by"] == len(others)
        assert [row["number"] for row in weather["rows"]] == others[:10]
        assert found["row"] == {"number": number, "town": f" {town} "}
        assert found["source_row"] == number


def test_explain_makes_no_call_and_fits_its_lines_to_the_terminal(local_days, service, capsys):
    local_days.write_input(DAYS[0], ["x", "y", "x"])
    local_days.fails["y"] = 500
    local_days.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=1.0))")
    local_days.run(DAYS[0])
    capsys.readouterr()
    service.stop = lambda: None
    calls = len(service.log)
    assert main(["explain", "towns", "--row", "number=0", "--package", "declared"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("towns  2013-01-10, version 0, run ")
    assert "  columns     temp_c=0.0" in lines
    assert "  used by     1 other row of the day: number=2" in lines
    assert main(["explain", "towns", "--row", "number=1", "--package", "declared"]) == 0
    out = capsys.readouterr().out
    assert "weather  error\n" in out
    assert "500" in out
    assert "nothing answered, and no answer is stored for its key" in " ".join(out.split())
    assert len(service.log) == calls


def test_explain_shows_personal_values_only_on_demand(local_days, capsys):
    local_days.towns.declare(pii=["town"])
    local_days.write_input(DAYS[0], ["secretville", "secretville"])
    assert local_days.run(DAYS[0]) == 0
    arguments = ["explain", "towns", "--row", "number=0", "--package", "declared"]
    for more in ([], ["--json"]):
        capsys.readouterr()
        assert main([*arguments, *more]) == 0
        out = capsys.readouterr().out
        assert "secretville" not in out
        assert "temp_c=0.0" not in out
        assert key_text(("secretville",), hidden=True) in out
        assert "1 other row" in out or '"used_by": 1' in out
    assert main([*arguments, "--show-personal"]) == 0
    assert "GET /v1/secretville" in capsys.readouterr().out


def test_columns_of_a_removed_lookup_are_not_shown_as_input(local_days, explained):
    local_days.towns.declare(pii=["town"])
    local_days.write_input(DAYS[0], ["secretville"])
    assert local_days.run(DAYS[0]) == 0
    local_days.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, name='rain',",
        "    paths={'rain_mm': '$.temp_c'}, returns='rain_mm DOUBLE')])",
    )
    assert explained("--row", "number=0")["row"] == {"number": 0, "town": "***"}


def test_explain_reports_what_became_of_a_stored_answer(local_days, explained):
    towns = local_days.towns
    local_days.write_input(DAYS[0], ["x"])
    local_days.run(DAYS[0])
    row = ("--row", "number=0")
    assert explained(*row)["lookups"][0]["stored"] == "stored"
    expire_keys(towns.folder, [key_text(("x",))])
    assert explained(*row)["lookups"][0]["stored"] == "stored; declared expired since"
    towns.declare_too("towns = replace(towns, lookups=[replace(weather, version=2)])")
    earlier = explained(*row)["lookups"][0]
    assert json.loads(earlier["response"]) == {"temp_c": 0.0, "town": "x"}
    assert "for an earlier request; changed since: version 1 -> 2" in earlier["stored"]
    towns.declare()
    local_days.write_input(DAYS[1], ["x"])
    local_days.run(DAYS[1])
    (ledger,) = declared_ledgers([("", towns.enrichment)])
    compact(ledger)
    (weather,) = explained(*row, "--day", DAYS[0])["lookups"]
    assert weather["stored"] == "not stored any more: a newer one replaced it"
    assert weather["response"] is None
    assert explained(*row, "--day", DAYS[1])["lookups"][0]["stored"] == "stored"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "number"], "--row number: write COLUMN=VALUE, such as order_id=17."),
        (["--row", "number=1", "--row", "number=2"], "--row number=2: number=1 is given too"),
        (["--row", "number=1", "number=2"], "--row number=2: number=1 is given too"),
        (["--row", "numbr=1"], "no column 'numbr'. Did you mean 'number'? It has: number, town"),
        (["--row", "number=x"], "--row number=x: the column is of type int32, and the value does"),
        (["--row", "number=9"], "--row number=9: no row of 1 published day has these values."),
        (["--row", "town= town-1 "], "2 rows of 2013-01-10 have these values; name one row, by"),
        (["--row", "number=1", "--column", "c"], "--column c: no lookup of towns makes it. They "),
        (["--row", "number=1", "--day", "2013-01-09"], "the newest day with rows is 2013-01-10."),
        (["--row", "number=1", "--day", "13-1-9"], "--day is '13-1-9'; it must be a date"),
    ],
)
def test_a_row_that_cannot_be_explained_is_refused_in_one_sentence(
    towns, capsys, arguments, message
):
    towns.publish(DAYS[0], [1, 1, 2])
    assert main(["explain", "towns", "--package", "declared", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_row_rewritten_by_another_program_is_refused_in_one_sentence(towns, capsys):
    towns.publish(DAYS[0], [1, 2])
    DeltaTable("data/published/towns").optimize.z_order(["number"])
    assert main(["explain", "towns", "--package", "declared", "--row", "number=1"]) == 2
    error = capsys.readouterr().err
    place = Path("data/published/towns").resolve()
    assert error.startswith(f"--row number=1: another program wrote {place}/date=")
    # texts are Arrow's views there
    assert main(["explain", "towns", "--package", "declared", "--row", "town= town-1 "]) == 2
    assert error[len("--row number=1") :] == capsys.readouterr().err[len("--row town= town-1 ") :]
    assert error.endswith(
        ".parquet, as OPTIMIZE does, which does not tell how its rows were made. Run its day again.\n"
    )
    assert main(["explain", "towns", "--package", "declared", "--row", "number=9"]) == 2
    assert "no row of 1 published day has these values" in capsys.readouterr().err


def test_explain_shows_the_request_with_its_schema_and_without_a_repair():
    service = Service(name="model", url="http://a", max_concurrency=1)
    label = HttpLookup(
        name="label", service=service, keys={"k": "k"}, returns="x INT", timeout=1.0,
        request="POST /chat", schema={"required": ["x"]}, repair=1,
        body={"text": "{k}{repair}", "schema": "{schema}"},
    )  # fmt: skip
    text = request_text(label, {"k": "a"})
    assert text == 'POST /chat {"text": "a", "schema": {"required": ["x"]}}'


def test_explain_finds_a_row_whose_key_was_renamed(local_days, explained, capsys):
    local_days.write_input(DAYS[0], ["x"])
    local_days.run(DAYS[0])
    local_days.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, request='GET /v1/{place}',",
        "    keys={'place': 'trim(town)'})])",
    )
    (weather,) = explained("--row", "number=0")["lookups"]
    assert (weather["key"], weather["key_text"]) == ({"town": "x"}, '["x"]')
    assert json.loads(weather["response"])["town"] == "x"
    assert "the key is declared with place now" in weather["request"]
    assert main(["explain", "towns", "--package", "declared", "--row", "number=0"]) == 0
    assert "key         town=x\n" in capsys.readouterr().out


def test_explain_names_the_part_of_a_key_that_was_null(local_days, explained, capsys):
    local_days.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, request='GET /v1/{place}/{number}',",
        "    keys={'place': 'trim(town)', 'number': 'number'})])",
    )
    local_days.write_input(DAYS[0], ["x", None])
    local_days.run(DAYS[0])
    (weather,) = explained("--row", "number=1")["lookups"]
    assert (weather["key"], weather["key_text"]) == ({"place": None, "number": 1}, None)
    assert weather["request"] is None
    assert main(["explain", "towns", "--row", "number=1", "--package", "declared"]) == 0
    out = capsys.readouterr().out
    assert "place=null from trim(town)" in out
    assert "number=1 from number" in out


def test_a_row_is_found_by_a_column_that_older_days_lack(local_days, explained, capsys):
    local_days.write_input(DAYS[0], ["x"])
    local_days.write_input(DAYS[1], ["x"], extra=pa.array([5]), _id=pa.array([7]))
    local_days.run(*DAYS[:2])
    assert explained("--row", "extra=5")["day"] == DAYS[1]
    arguments = ["explain", "towns", "--package", "declared", "--row"]
    assert main([*arguments, "extra=6"]) != 0
    assert "no row of 2 published days has these values" in capsys.readouterr().err
    assert main([*arguments, "extra=5", "--day", DAYS[0]]) != 0
    assert "has no column 'extra'" in capsys.readouterr().err
    assert main([*arguments, "town_name=6", "--day", DAYS[1]]) != 0
    said = capsys.readouterr().err
    assert "It has: number, town, extra, _id, " in said
