"""Personal values stay out of what commands print and keep: seen by a word of the input."""

import json
from pathlib import Path

import pytest

from jobs.commands.replaying.dead_letters import find_dead_letters, shown_letter
from tidegate.__main__ import main

DAY, WORD = "2013-01-10", "secretville"
ROW_ID = "towns = replace(towns, input=replace(towns.input, row_id=['Town']), pii=['town'])"
LETTERS = "towns = replace(towns, lookups=[replace(weather, on_error='dead_letter')])"


def printed(capsys, *arguments):
    capsys.readouterr()
    main([*arguments, "--package", "declared"])
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("declared", ["", ROW_ID])
def test_a_failing_personal_key_is_in_no_message_and_no_record(local_days, capsys, declared):
    local_days.towns.declare(pii=["town"])
    local_days.towns.declare_too(declared, "towns = replace(towns, summaries=[])")
    local_days.write_input(DAY, [WORD, "beta"])
    local_days.fails = {WORD: 500}
    capsys.readouterr()
    local_days.run(DAY)
    told = "".join(capsys.readouterr())
    assert "held back" in told
    assert "1 time 500" in told
    shown = [told, printed(capsys, "status", "towns"), printed(capsys, "show", "towns", DAY)]
    assert [text for text in shown if WORD in text] == []
    kept = [file for place in ("runs", "quality", "reports") for file in Path("data").rglob("*")
            if place in file.parts or file.suffix in (".db", ".html")]  # fmt: skip
    kept = [file for file in kept if file.is_file() and file.suffix in (".json", ".db", ".html")]
    assert kept
    assert [file for file in kept if WORD.encode() in file.read_bytes()] == []


def test_each_dead_letter_of_a_personal_key_is_printed_without_its_error(local_days, capsys):
    local_days.towns.declare(pii=["town"])
    local_days.write_input(DAY, [WORD, "beta"])
    local_days.fails = {WORD: 500}
    local_days.run(DAY)
    told = printed(capsys, "dead-letters", "towns", "--each")
    assert "1 dead letter" in told
    assert WORD not in told


def test_dead_letters_of_a_personal_key_are_reported_with_a_hidden_reason(local_days, capsys):
    local_days.towns.declare(pii=["town"])
    local_days.write_input(DAY, ["", "beta"])
    local_days.run(DAY)
    told = printed(capsys, "dead-letters", "towns")
    assert "no reason is recorded, or its key is personal: --csv writes the error" in told


def test_dead_letters_from_before_a_column_became_personal_are_hidden(local_days, capsys):
    local_days.towns.declare()
    local_days.write_input(DAY, [WORD, "beta"])
    local_days.fails = {WORD: 500}
    local_days.run(DAY)
    assert WORD in printed(capsys, "dead-letters", "towns", "--each")
    local_days.towns.declare(pii=["town"])
    for options in ((), ("--each",), ("--json",)):
        assert WORD not in printed(capsys, "dead-letters", "towns", *options)
    ((letter,),) = (day.rows for day in find_dead_letters(local_days.towns.enrichment))
    assert shown_letter(local_days.towns.enrichment, letter)["_key"] == "***"


def test_eval_shows_no_answer_to_a_personal_key_unless_asked(local_days, capsys):
    local_days.towns.declare(pii=["TOWN", "NUMBER"], returns="label STRING")
    local_days.towns.declare_too(
        "weather = replace(weather, paths={'label': '$.town'})",
        "towns = replace(towns, lookups=[weather])",
        "warm = replace(weather, paths={'label': '$.temp_c'})",
    )
    local_days.write_input(
        DAY,
        [WORD, "beta"],
    )
    options = ("eval", "towns", "--day", DAY, "--with", "warm", "--json")
    told = printed(capsys, *options)
    assert '"differing": [{' in told
    assert WORD not in told
    (found,) = [json.loads(line) for line in told.splitlines() if line[0] == "{"]
    assert [row["row"] for row in found["differing"]] == [{"number": "***"}] * 2
    assert WORD in printed(capsys, *options, "--show-personal")


def test_the_reason_of_a_stopped_run_repeats_no_personal_key(local_days, capsys):
    local_days.towns.declare(pii=["town"])
    local_days.towns.declare_too(
        "from datetime import timedelta",
        "from tidegate import Outage",
        "outage = Outage(after=2, wait_at_most=timedelta(seconds=0.2),",
        "    probe_every=timedelta(seconds=0.1))",
        "weather = replace(weather, service=replace(weather.service, outage=outage))",
        "towns = replace(towns, summaries=[], lookups=[weather])",
    )
    towns = [f"{WORD}{letter}" for letter in "abcdef"]
    local_days.fails = dict.fromkeys(towns, 500)
    local_days.write_input(DAY, towns)
    capsys.readouterr()
    local_days.run(DAY)
    told = "".join(capsys.readouterr()) + printed(capsys, "status", "towns")
    assert "UTC (500); gate closed" in " ".join(told.split())
    assert WORD not in told


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("service=replace(weather.service, stop_on=(403,))", "denies access: 403."),
        (
            "service=replace(weather.service, stop_on=()), on_error='fail'",
            "a row ended as error (403); on_error is 'fail'",
        ),
    ],
)
@pytest.mark.parametrize("ledger", ["Ledger('data/ledger')", "None"])
def test_the_message_of_a_failed_run_repeats_no_personal_key(
    local_days, capsys, changed, said, ledger
):
    local_days.towns.declare(pii=["town"])
    local_days.towns.declare_too(
        f"weather = replace(weather, {changed})",
        f"towns = replace(towns, summaries=[], lookups=[weather], ledger={ledger})",
    )
    local_days.fails = {WORD: 403}
    local_days.write_input(DAY, [WORD, "beta"])
    capsys.readouterr()
    local_days.run(DAY)
    told = "".join(capsys.readouterr()) + printed(capsys, "status", "towns")
    assert said in " ".join(told.split())
    assert WORD not in told
