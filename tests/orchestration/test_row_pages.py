"""The pages of a row and of dead letters: real days, judged by the service's log and the files."""

import html
import json
import re
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

import pyarrow as pa
import pytest

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from orchestration.common.table_pages import TablePages
from tests.jobs.commands.conftest import LocalDays, towns_in
from tests.support.program_here import in_this_session
from tests.support.readable import assert_readable
from tidegate.__main__ import main

DAY = "2013-01-10"
SPARED = "towns = replace(towns, tolerance=Tolerance(error={}))"


@pytest.fixture
def days(tmp_path, monkeypatch, service):
    towns = towns_in(tmp_path, monkeypatch)
    monkeypatch.setenv("WEATHER_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    return LocalDays(towns, service)


@pytest.fixture
def pages():
    return TablePages("declared", Path("data/reports"))


def text_of(page):
    """What a person reads on a page."""
    body = page[1].partition("<body>")[2].partition("<script>")[0]
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", body)).split())


def test_a_key_that_had_another_name_is_shown_with_that_name(days, pages):
    days.write_input(DAY, ["x"])
    assert days.run(DAY) == 0
    days.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, request='GET /v1/{place}',",
        "    keys={'place': 'trim(town)'})])",
    )
    text = text_of(pages.make("/row/towns", {"number": "0"}))
    assert "key town = x request" in text
    assert "place =" not in text


def test_a_published_row_leads_to_its_request_answer_and_equal_rows(days, pages, service):
    days.write_input(DAY, ["x", "<b>", "x"])
    assert days.run(DAY) == 0
    calls = len(service.log)
    status, page = pages.make("/row/towns", {"number": "0", "_day": DAY})
    assert status == HTTPStatus.OK
    text = text_of((status, page))
    (answer,) = [json.dumps(answer) for _, town, answer in days.calls if town == "x"]
    for part in ("GET /v1/x to weather_api", f"{DAY}, version 0", "town = x from trim(town)"):
        assert part in text
    assert json.loads(re.search(r"answer (\{.*?\}) used by", text)[1]) == json.loads(answer)
    (link,) = re.findall(r'<a href="towns\?([^"]+)">number=2</a>', page)
    other = pages.make("/row/towns", dict(parse_qsl(html.unescape(link))))
    assert "number 2" in text_of(other)
    assert "<b>" not in pages.make("/row/towns", {"number": "1"})[1].partition("<main>")[2].replace(
        "<b>Next", ""
    )
    assert len(service.log) == calls


def test_a_missing_row_has_a_page_that_says_so(days, pages):
    days.write_input(DAY, ["x"])
    assert days.run(DAY) == 0
    for path, query, sentence in (
        ("/row/towns", {"number": "7"}, "no row of 1 published day has these values"),
        ("/row/towns", {"numbers": "7"}, "Did you mean 'number'?"),
        ("/row/towns", {"number": "0", "_day": "yesterday"}, "it must be a date"),
        ("/row/town", {"number": "0"}, "no enrichment is named 'town'."),
        ("/row/os:path", {"number": "0"}, "no enrichment is named 'os:path'."),
        ("/letters/towns", {"day": "2013-01-11"}, "2013-01-11 was never run to its end"),
    ):
        found = pages.make(path, query)
        assert found[0] == HTTPStatus.NOT_FOUND
        assert sentence in text_of(found), (path, query)
    assert pages.make("/row/towns/more", {}) is None
    assert pages.make("/rows/towns", {}) is None
    form = pages.make("/row/towns", {})
    assert form[0] == HTTPStatus.OK
    assert 'name="number"' in form[1]


def test_dead_letters_are_grouped_by_reason_with_the_calls_of_a_replay(days, pages):
    days.write_input(DAY, ["alpha", "beta", "gamma", "delta"])
    days.fails = {"beta": 500, "gamma": 500, "delta": 422}
    days.towns.declare_too(SPARED.format(1.0))
    assert days.run(DAY) == 0
    found = pages.make("/letters/towns", {})
    text = text_of(found)
    assert "3 dead letters, rows without an answer, by reason" in text
    assert text.index("2 error of weather") < text.index("1 error of weather")
    assert "tidegate replay towns --where '" in text
    (link, *_) = re.findall(r'<a href="\.\./row/towns\?([^"]+)">', found[1])
    row = pages.make("/row/towns", dict(parse_qsl(html.unescape(link))))
    assert "weather error" in text_of(row)
    assert "1 dead letter, rows" in text_of(
        pages.make("/letters/towns", {"where": "Unprocessable"})
    )
    nothing = pages.make("/letters/towns", {"where": "no such"})
    assert "No letter of this choice." in text_of(nothing)


@pytest.mark.parametrize(("row_id", "column"), [("_id", "_id"), ("NUMBER", "number"), ("", "")])
def test_a_dead_letter_names_its_row_however_its_id_is_spelled(days, pages, capsys, row_id, column):
    days.write_input(DAY, ["alpha", "beta"], _id=pa.array(["a17", "b18"]))
    days.fails = {"beta": 500}
    named = repr([row_id] if row_id else [])
    days.towns.declare_too(
        SPARED.format(1.0), f"towns = replace(towns, input=replace(towns.input, row_id={named}))"
    )
    assert days.run(DAY) == 0
    shown = {"_id": "_id=b18", "number": "number=1"}.get(column, "_source_row=1")
    found = pages.make("/letters/towns", {})
    assert shown in text_of(found)
    (link,) = re.findall(r'<a href="\.\./row/towns\?([^"]+)">', found[1])
    row = pages.make("/row/towns", dict(parse_qsl(html.unescape(link))))
    assert "town beta" in text_of(row)
    capsys.readouterr()
    assert main(["dead-letters", "towns", "--package", "declared"]) == 0
    assert shown in capsys.readouterr().out


def test_personal_values_are_on_no_page(days, pages):
    days.towns.declare(pii=["town"])
    days.towns.declare_too(SPARED.format(1.0))
    days.write_input(DAY, ["secretville", "hiddenham"])
    days.fails = {"hiddenham": 500}
    assert days.run(DAY) == 0
    made = [pages.make("/row/towns", {"number": number}) for number in "01"]
    made += [pages.make("/letters/towns", {}), pages.make("/", {})]
    for page in made:
        assert page[0] == HTTPStatus.OK
        assert "secretville" not in page[1]
        assert "hiddenham" not in page[1]
    assert "***" in text_of(made[0])


def test_letters_without_a_shown_reason_have_no_command_that_would_be_refused(days, pages):
    days.towns.declare(pii=["town"])
    days.towns.declare_too(
        "weather = replace(weather, paths={'temp_c': '$.town'})",
        "towns = replace(towns, lookups=[weather])",
        SPARED.format(1.0),
    )
    days.write_input(DAY, ["x"])
    assert days.run(DAY) == 0
    text = text_of(pages.make("/letters/towns", {}))
    assert "No reason is recorded, or its key is personal." in text
    assert "replay" not in text


def test_values_from_a_query_are_shown_as_text(days, pages):
    days.write_input(DAY, ["x"])
    assert days.run(DAY) == 0
    bad = '"><script>alert(1)</script>'
    for path, query in (
        ("/row/towns", {"town": bad}),
        (f"/row/{quote(bad, safe='')}", {}),
        ("/letters/towns", {"where": bad}),
        ("/row/towns", {bad: "1"}),
    ):
        assert "<script>alert" not in pages.make(path, query)[1], urlencode(query)


@pytest.mark.ui
def test_axe_finds_nothing_serious_on_the_pages_of_a_row_and_of_letters(days, pages):
    days.write_input(DAY, ["a", "b", "a"])
    days.fails = {"b": 500}
    days.towns.declare_too(SPARED.format(1.0))
    assert days.run(DAY) == 0
    made = {
        "row": ("/row/towns", {"number": "0"}),
        "row_of_an_error": ("/row/towns", {"number": "1"}),
        "which_row": ("/row/towns", {}),
        "letters": ("/letters/towns", {}),
        "no_letters": ("/letters/towns", {"where": "no such"}),
        "problem": ("/row/no", {}),
    }
    folder = Path("served")
    folder.mkdir()
    for name, (path, query) in made.items():
        (folder / f"{name}.html").write_text(pages.make(path, query)[1])
    assert_readable(*folder.iterdir())
