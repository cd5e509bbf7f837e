"""Replay: which letters a day has, and that a miss among them is asked again."""

import csv
import dataclasses
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.commands.expiry import expire_keys
from jobs.commands.replaying.replay import find_letters, prepare, replay, void_what_failed
from jobs.declare.ledger_settings import FOR_EVER
from jobs.errors import DeclarationError
from jobs.ledger.keys import key_text
from jobs.ledger.selection import select
from jobs.process.day_pipeline import DayPipeline
from jobs.storage import durable
from jobs.tables.records import run_records
from tests.support.places import everywhere
from tidegate.__main__ import main

DAY = "2013-01-10"


def pipeline(enrichment):
    return DayPipeline(
        reference="declared.towns:towns", enrichment=enrichment, quality=None, submit=None
    )


def test_a_replay_of_a_day_without_dead_letters_starts_nothing(towns):
    towns.publish(DAY, [1, 2])
    assert replay(pipeline(towns.enrichment), DAY) is None  # there is no Spark that it could start


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_takes_the_dead_letters_of_the_published_or_later_held_back_run(towns):
    towns.publish(DAY, [1, 2, 3], statuses={3: "error"})
    assert find_letters(towns.enrichment, DAY)["_key"].to_pylist() == ['["town-3"]']
    later = towns.written(DAY, [1, 2, 3], "later", {1: "timeout", 2: "not_asked"})
    facts = dataclasses.replace(later.facts, started_at=f"{DAY}T09:00:00+00:00")
    run_records.hold_back(dataclasses.replace(later, facts=facts), "too many")
    assert sorted(find_letters(towns.enrichment, DAY)["_key"].to_pylist()) == [
        '["town-1"]',
        '["town-2"]',
    ]


@everywhere("towns", on_store=pytest.mark.proof)
def test_dead_letters_of_held_back_and_published_days_are_listed(towns, capsys):
    arguments = ["dead-letters", "towns", "--package", "declared", "--day", DAY, "--each"]
    assert main(arguments) == 2
    towns.publish(DAY, [1, 2, 3], statuses={3: "error"})
    # whose rows a crash may leave in the table
    towns.written(DAY, [1, 2, 3], "killed", {1: "error"})
    assert main(arguments) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert re.match(r'weather  error  \["town-3"\]  .*\bnumber=3\b', first)
    assert last == f"{DAY}  1 dead letter of run run-{DAY} (published)"
    later = towns.written(DAY, [1, 2, 3], "later", {1: "timeout", 2: "not_asked"})
    facts = dataclasses.replace(later.facts, started_at=f"{DAY}T09:00:00+00:00")
    run_records.hold_back(dataclasses.replace(later, facts=facts), "too many")
    assert main([*arguments, "--csv", "letters.csv"]) == 0
    assert capsys.readouterr().out == f"{DAY}  2 dead letters of run later (held back)\n"
    with Path("letters.csv").open(newline="") as file:
        found = [(row["number"], row["_status"], row["_key"]) for row in csv.DictReader(file)]
    assert sorted(found) == [("1", "timeout", '["town-1"]'), ("2", "not_asked", '["town-2"]')]


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_calls_again_for_a_dead_letter_with_a_stored_miss(towns):
    towns.declare(on_miss="dead_letter")
    towns.store({1: {"temp_c": 1.0}, 2: None, 3: None, 4: {"temp_c": 2.0}})
    # the answer of 4 came after its row had left
    towns.publish(DAY, [1, 2, 4], statuses={2: "miss", 4: "timeout"})
    assert void_what_failed(towns.enrichment, DAY, find_letters(towns.enrichment, DAY)) == 1
    wanted = pa.array([key_text((f"town-{number}",)) for number in (1, 2, 3, 4)])
    known = (
        select(towns.folder, wanted, now_us=time.time_ns() // 1000, ttl=FOR_EVER)
        .answers["key"]
        .to_pylist()
    )
    assert known == ['["town-1"]', '["town-3"]', '["town-4"]']


@everywhere("towns", on_store=pytest.mark.proof)
@pytest.mark.parametrize("suffix", ["", "-keys"])  # asked by row, or before the rows
def test_a_killed_replay_is_continued_without_a_repeated_call(towns, suffix):
    towns.declare(on_miss="dead_letter")
    towns.store({1: None, 2: None, 3: None})
    towns.publish(DAY, [1, 2, 3], statuses={1: "miss", 2: "miss", 3: "miss"})
    letters = find_letters(towns.enrichment, DAY)
    durable.replace(run_records.run_log("towns", DAY, "killed"), b"")
    towns.store({1: None}, at=f"{DAY}T04:00:00+00:00", run_id=f"killed{suffix}")
    towns.store({2: None}, at=f"{DAY}T04:00:00+00:00", run_id="of-another-day")
    assert void_what_failed(towns.enrichment, DAY, letters) == 2
    wanted = pa.array([key_text((f"town-{number}",)) for number in (1, 2, 3)])
    known = (
        select(towns.folder, wanted, now_us=time.time_ns() // 1000, ttl=FOR_EVER)
        .answers["key"]
        .to_pylist()
    )
    assert known == ['["town-1"]']
    later = {"started_at": f"{DAY}T04:30:00+00:00", "finished_at": f"{DAY}T05:00:00+00:00"}
    towns.publish(DAY, [1, 2, 3], run_id="whole", statuses={1: "miss"}, **later)
    assert void_what_failed(towns.enrichment, DAY, find_letters(towns.enrichment, DAY)) == 1


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_calls_again_for_a_stored_answer_that_does_not_fit(towns):
    towns.store({1: {"temp_c": 1.0}, 2: {"temp_c": "warm"}, 3: {"temp_c": "mild"}})
    towns.publish(DAY, [1, 2], statuses={2: "error"})
    assert void_what_failed(towns.enrichment, DAY, find_letters(towns.enrichment, DAY)) == 1
    wanted = pa.array([key_text((f"town-{number}",)) for number in (1, 2, 3)])
    known = (
        select(towns.folder, wanted, now_us=time.time_ns() // 1000, ttl=FOR_EVER)
        .answers["key"]
        .to_pylist()
    )
    assert known == ['["town-1"]', '["town-3"]']


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_never_repeats_a_call_that_must_not_be_made_twice(towns):
    towns.declare(on_miss="dead_letter")
    towns.store({1: {"temp_c": "warm"}, 2: None})
    towns.publish(DAY, [1, 2], statuses={1: "error", 2: "miss"})
    (weather,) = towns.enrichment.lookups
    once = dataclasses.replace(
        towns.enrichment, lookups=[dataclasses.replace(weather, idempotent=False)]
    )
    letters = find_letters(towns.enrichment, DAY)
    assert void_what_failed(once, DAY, letters) == 0
    assert void_what_failed(towns.enrichment, DAY, letters) == 2


def test_a_replay_refuses_a_day_that_another_program_rewrote(towns):
    towns.publish(DAY, [1, 2, 3], statuses={3: "error"})
    DeltaTable("data/published/towns").optimize.z_order(["number"])
    message = (
        f"towns: another program wrote files of {DAY}, as OPTIMIZE does, which do not tell the keys "
        "of their rows: a replay could call for more than its dead letters. Run the day instead; "
        "tidegate plan says what it asks."
    )
    with pytest.raises(DeclarationError, match=re.escape(message)):
        replay(pipeline(towns.enrichment), DAY)


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_refuses_a_changed_request(towns):
    towns.publish(DAY, [1, 2, 3, 4], statuses={3: "error"})
    # other days have asked as it is declared now
    towns.store({1: {"temp_c": 1.0}, 77: {"temp_c": 1.0}})
    with pytest.raises(DeclarationError) as refused:
        replay(pipeline(towns.enrichment), DAY)
    assert str(refused.value) == (
        "towns: lookup weather: the ledger lacks 2 of 3 answers to its requests as declared now: "
        f"a replay of {DAY} would call for more than its dead letters. Run the day instead; "
        "tidegate plan says what it asks."
    )


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_replay_accepts_a_day_with_answers_declared_expired(towns):
    towns.store({1: {"temp_c": 1.0}, 2: {"temp_c": 1.0}})
    towns.publish(DAY, [1, 2, 3], statuses={3: "error"})
    expire_keys(towns.folder, [key_text(("town-2",))])
    assert prepare(towns.enrichment, DAY) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "climate", "returns": "c DOUBLE"}, "lookup climate: it is new since then"),
        ({"keys": {"town": "lower(town)"}}, "lookup weather: its keys have changed since then"),
    ],
)
def test_a_replay_refuses_a_new_lookup_and_changed_keys(towns, change, message):
    towns.store({1: {"temp_c": 1.0}})
    towns.publish(DAY, [1, 2], statuses={2: "error"})
    (weather,) = towns.enrichment.lookups
    other = dataclasses.replace(weather, **change)
    lookups = [weather, other] if other.name != weather.name else [other]
    with pytest.raises(DeclarationError, match=message):
        prepare(dataclasses.replace(towns.enrichment, lookups=lookups), DAY)


def test_a_day_that_cannot_be_replayed_is_refused_in_one_sentence(towns, capsys):
    assert main(["replay", "towns", "--day", DAY, "--package", "declared"]) == 2
    assert capsys.readouterr().err == (
        f"towns: {DAY} was never run to its end; there is nothing to replay. Run it.\n"
    )
    assert main(["replay", "towns", "--day", "10.1.2013", "--package", "declared"]) == 2
    assert "--day is '10.1.2013'; it must be a date" in capsys.readouterr().err
    with pytest.raises(DeclarationError, match="has no ledger: a replay would call for every row"):
        replay(pipeline(dataclasses.replace(towns.enrichment, ledger=None)), DAY)


def test_an_error_of_a_replay_is_kept_as_long_as_an_error_of_a_run(local_days):
    local_days.towns.declare_too(
        "from datetime import timedelta",
        "from tidegate import Tolerance, Ttl",
        "towns = replace(towns, tolerance=Tolerance(error=1.0))",
    )
    local_days.fails = {"alpha": 422}
    local_days.write_input(DAY, ["alpha", "beta"])
    assert local_days.run(DAY) == 0
    local_days.towns.declare_too(
        "weather = replace(weather, ttl=Ttl(error=timedelta(days=1)))",
        "towns = replace(towns, lookups=[weather])",
    )
    assert local_days.run(DAY, command="replay") == 0
    assert len(local_days.calls) == 3
    assert local_days.run(DAY) == 0
    assert len(local_days.calls) == 3
