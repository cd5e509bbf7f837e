"""`replay --where` pays for exactly the letters that it chooses: counted at a real service."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.commands.replaying.replay_where import leaves_few
from jobs.tables.records import run_records
from tidegate.__main__ import main

DAYS = ("2013-01-10", "2013-01-11")
PRICED = (
    "from tidegate import Price",
    "towns = replace(towns, tolerance=Tolerance(error=0.9), lookups=[replace(weather,",
    "    service=replace(weather.service, prices=[Price('0.0040 USD')]))])",
)
TOWNS = ["alpha", "beta", "gamma", "delta", "alpha", "gamma"]


@pytest.fixture
def failed(local_days):
    """Two days of six rows: alpha and gamma answered with 500, delta with 422."""
    local_days.towns.declare_too(*PRICED)
    local_days.fails = {"alpha": 500, "gamma": 500, "delta": 422}
    for day in DAYS:
        local_days.write_input(day, TOWNS)
    local_days.run(*DAYS)
    assert [run_records.latest("towns")[place].dead_letters for place in (0, 1)] == [5, 5]
    local_days.calls.clear()
    return local_days


def replay(*arguments):
    return main(["replay", "towns", "--package", "declared", *arguments])


def statuses(day):
    table = pa.table(DeltaTable("data/published/towns").to_pyarrow_table())
    rows = [row for row in table.to_pylist() if str(row["date"]) == day]
    return {row["number"]: row["weather_status"] for row in rows}


def test_the_price_of_a_replay_equals_the_calls_that_the_service_counts(failed, capsys):
    capsys.readouterr()
    assert replay("--where", "500 internal", "--json") == 0
    (first, second) = json.loads(capsys.readouterr().out)["letters"]
    assert (first["day"], first["letters"], first["calls"], first["cost"]) == (
        DAYS[0], 4, 2, "0.0080",
    )  # fmt: skip
    assert (second["day"], second["letters"], second["calls"]) == (DAYS[1], 4, 2)
    assert failed.calls == []
    failed.fails = {}
    assert replay("--where", "500 internal", "--day", DAYS[0], "--run") == 0
    assert f"{DAYS[0]}  weather: 4 letters, 2 calls, 0.0080 at 0.0040 USD per item" in (
        capsys.readouterr().out
    )
    assert Counter(town for _, town, _ in failed.calls) == {"alpha": 1, "gamma": 1}
    assert main(["dead-letters", "towns", "--package", "declared", "--day", DAYS[0]]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "not_asked 1 letter 2013-01-10 its vendor was down, or a replay of other letters, or a "
        "remap, left it out" in told
    )
    record = run_records.latest("towns")[0]
    assert (record.state, record.figures.lookups[0].billed.cost) == ("published", "0.0080")
    assert statuses(DAYS[0]) == {
        0: "ok", 1: "ok", 2: "ok", 3: "not_asked", 4: "ok", 5: "ok",
    }  # fmt: skip
    assert set(statuses(DAYS[1]).values()) == {"ok", "error"}
    # the ledger has the answers now, so the other day's cost nothing
    assert replay("--where", "500 internal", "--json") == 0
    (left,) = json.loads(capsys.readouterr().out.splitlines()[-1])["letters"]
    assert (left["day"], left["letters"], left["calls"], left["cost"]) == (DAYS[1], 4, 0, "0.0000")
    assert replay("--day", DAYS[0]) == 0
    assert sorted(town for _, town, _ in failed.calls) == ["alpha", "delta", "gamma"]
    assert set(statuses(DAYS[0]).values()) == {"ok"}


@pytest.mark.proof
def test_a_dead_letter_that_fails_again_is_called_once_and_stays_a_dead_letter(failed):
    assert replay("--where", "422 Unprocessable", "--day", DAYS[0], "--run") == 0
    assert [town for _, town, _ in failed.calls] == ["delta"]
    assert statuses(DAYS[0]) == {
        0: "not_asked", 1: "ok", 2: "not_asked", 3: "error", 4: "not_asked", 5: "not_asked",
    }  # fmt: skip
    assert run_records.latest("towns")[0].dead_letters == 5


def test_a_replay_with_retries_stops_at_its_price_and_continues_later(failed, capsys):
    failed.towns.declare_too(
        "towns = replace(towns, lookups=[replace(towns.lookups[0], "
        "retry=Retry(retries=3, initial_delay=0.01))])"
    )
    chosen = ("--where", "500 internal", "--day", DAYS[0], "--run")
    failed.fails = {"alpha": 503, "gamma": 503}
    assert replay(*chosen, "--max-cost", "0.0080 USD") == 3
    assert len(failed.calls) == 2
    assert "0.0080 USD" in capsys.readouterr().out
    failed.fails = {}
    assert replay(*chosen) == 0
    assert len(failed.calls) == 4
    assert statuses(DAYS[0])[0] == "ok"


def test_a_replay_with_too_many_dead_letters_left_is_held_back_and_keeps_its_answers(
    failed, capsys
):
    failed.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=0.5))")
    failed.fails = {}
    assert replay("--where", "422 Unprocessable", "--day", DAYS[0], "--run") == 1
    assert "4 rows of 6 would have no answer, 66.67%; tolerated 50.00%" in capsys.readouterr().out
    assert statuses(DAYS[0])[3] == "error"
    assert leaves_few(run_records.latest("towns")[0])
    assert replay("--day", DAYS[0]) == 0
    assert sorted(town for _, town, _ in failed.calls) == ["alpha", "delta", "gamma"]


def test_letters_left_among_changed_rows_are_a_share_of_the_whole_table(local_days):
    local_days.towns.declare_too(
        "changed = replace(towns.input, every=['all'], rows='changed')",
        "towns = replace(towns, input=changed, tolerance=Tolerance(error=0.2))",
    )
    local_days.fails = {"alpha": 500, "delta": 422}
    local_days.write_input("all", ["alpha", "delta", *(f"town {n}" for n in range(8))])
    assert local_days.run("all") == 0
    local_days.fails = {"delta": 422}
    assert replay("--where", "500 internal", "--run") == 0
    assert (statuses("all")[0], statuses("all")[1]) == ("ok", "not_asked")


def test_a_wrong_choice_of_dead_letters_is_refused_in_one_sentence(towns, capsys):
    towns.store({1: {"temp_c": 1.0}})
    towns.publish(DAYS[0], [1, 2], statuses={2: "error"})
    assert replay() == 2
    assert replay("--day", DAYS[0], "--run") == 2
    towns.declare_too("towns = replace(towns, lookups=[replace(towns.lookups[0], cache=None)])")
    assert replay("--where", "it broke") == 2
    assert capsys.readouterr().err.splitlines() == [
        "no day is given: write --day 2013-01-10, or --where 'a reason'.",
        "--run goes with --where; without --where a replay runs at once. Leave --run out.",
        (
            "lookup weather: cache=None: it calls for rows, and --where chooses keys. Replay the "
            "whole day."
        ),
    ]
    assert replay("--where", "no such reason") == 0
    nothing = "No dead letter has this reason; nothing was called."
    assert capsys.readouterr().out.splitlines() == [nothing]
    assert replay("--where", "no such reason", "--run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["state"], said["day"], said["reason"]) == ("unchanged", None, nothing)


def test_a_replay_of_several_days_ends_with_the_day_that_a_service_stops(failed):
    failed.fails = {"alpha": 401}
    assert replay("--where", "500 internal", "--run") == 3
    assert [town for _, town, _ in failed.calls].count("alpha") == 1
