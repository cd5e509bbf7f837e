"""`test --against`: a changed declaration on a published day, without a connection to a service."""

import json
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tidegate.__main__ import main

DAY = "2013-01-10"
TOWNS = ["alpha", "beta", "gamma", "alpha"]


@pytest.fixture
def tested(local_days, monkeypatch, capsys):
    """Runs the command with sockets closed; returns its status and its object."""
    local_days.write_input(DAY, TOWNS)
    assert local_days.run(DAY) == 0
    calls = list(local_days.calls)
    own = set()  # ports that the run itself listens on, for its task
    bind, connect = socket.socket.bind, socket.socket.connect

    def bind_own(self, address):
        bind(self, address)
        own.add(self.getsockname()[1])

    def connect_to_own(self, address):
        if address[1] not in own:
            raise OSError(f"a connection to {address} was opened")
        connect(self, address)

    def files():
        return {path for path in Path("data").rglob("*") if "_leases" not in str(path)}

    def test(*lines):
        if lines:
            local_days.towns.declare_too(*lines)
        before = files()
        capsys.readouterr()
        with monkeypatch.context() as closed:
            closed.setattr(socket.socket, "bind", bind_own)
            closed.setattr(socket.socket, "connect", connect_to_own)
            closed.setattr(socket.socket, "connect_ex", connect_to_own)
            arguments = ["test", "towns", "--package", "declared", "--against", DAY, "--json"]
            status = main(arguments)
        assert local_days.calls == calls
        assert [path for path in files() - before if "ledger" not in str(path)] == []
        return status, json.loads(capsys.readouterr().out.splitlines()[-1])

    return test


def test_test_against_shows_no_change_for_an_unchanged_declaration(tested):
    (status, found), (_, again) = tested(), tested()
    assert (status, found["held_back"], found["lost"]) == (0, "", "")
    difference = found["difference"]
    assert (difference["changed"], difference["unchanged"], difference["columns"]) == (0, 4, [])
    assert again == found


def test_test_against_matches_rows_of_csv_by_their_place_in_the_file(local_days, capsys):
    folder = Path(f"data/raw/towns/date={DAY}")
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("number,town\n1,alpha\n,beta\n,gamma\n")  # a row_id that repeats
    local_days.towns.declare_too(
        "csv = replace(towns.input, format='csv', schema='number INT, town STRING')",
        "towns = replace(towns, input=csv)",
    )
    local_days.fails["gamma"] = 400
    local_days.towns.declare_too("towns = replace(towns, tolerance=Tolerance(error=0.5))")
    assert local_days.run(DAY) == 0
    capsys.readouterr()
    assert main(["test", "towns", "--package", "declared", "--against", DAY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    difference = found["difference"]
    assert (difference["added"], difference["removed"], difference["unchanged"]) == (0, 0, 2)
    assert (found["held_back"], found["lost"]) == ("", "")  # gamma had no answer


def test_test_against_reads_texts_of_a_day_that_another_program_wrote(tested):
    _, before = tested()
    DeltaTable("data/published/towns").optimize.z_order(["number"])  # with Arrow's views of texts
    status, found = tested(
        "towns = replace(towns, lookups=[replace(weather, paths={'temp_c': '$.nothing'})])"
    )
    assert (status, before["difference"]["unchanged"]) == (0, 4)
    assert found["difference"]["changed"] == 4


def test_test_against_names_the_version_of_the_day_after_another_was_published(tested, local_days):
    _, before = tested()
    local_days.write_input("2013-01-11", ["alpha"])
    assert local_days.run("2013-01-11") == 0
    assert tested()[1] == before
    assert before["difference"]["before"]["version"] == 0


def test_test_against_says_whether_the_day_would_be_published(local_days, capsys):
    local_days.write_input(DAY, TOWNS)
    assert local_days.run(DAY) == 0
    printed = []
    for _ in range(2):
        capsys.readouterr()
        assert main(["test", "towns", "--package", "declared", "--against", DAY]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0].endswith("\n\nwould be published\n")
    assert printed[0] == printed[1]


def test_test_against_shows_each_cell_that_a_new_column_or_path_changes(tested):
    status, found = tested(
        "towns = replace(towns, lookups=[replace(weather,",
        "    returns='temp_c DOUBLE, town_there STRING',",
        "    paths={'town_there': '$.town', 'temp_c': '$.nothing'})])",
    )
    assert status == 0
    difference = found["difference"]
    assert difference["new_columns"] == ["town_there"]
    assert {column["column"]: column["cells"] for column in difference["columns"]} == {"temp_c": 4}
    assert {example["to"] for example in difference["columns"][0]["examples"]} == {None}


@pytest.mark.proof
def test_test_against_reports_that_answers_out_of_a_new_range_hold_the_day_back(tested):
    status, found = tested(
        "towns = replace(towns, lookups=[replace(weather, ranges={'temp_c': (100.0, None)})])"
    )
    assert status == 1
    assert found["held_back"].startswith("weather__answers_in_range: ")


def test_test_against_reports_that_a_path_without_values_holds_the_day_back(local_days, capsys):
    for day in ("2013-01-09", DAY):
        local_days.write_input(day, [f"town {number}" for number in range(20)])
    assert local_days.run("2013-01-09", DAY) == 0
    local_days.towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, paths={'temp_c': '$.temp'})])"
    )
    assert main(["test", "towns", "--package", "declared", "--against", DAY]) == 1
    assert "weather__columns_filled: temp_c is null in all 20 rows" in capsys.readouterr().out


def test_test_against_counts_rows_that_lose_their_answers(tested):
    status, found = tested("towns = replace(towns, lookups=[replace(weather, version=2)])")
    assert status == 1
    assert "lookup weather: 4 rows have an answer in the published day" in found["lost"]
    assert found["difference"]["after"]["outcomes"] == {"weather": {"not_asked": 4}}


def test_a_day_that_cannot_be_tested_is_refused_in_one_sentence(local_days, capsys):
    arguments = ["test", "towns", "--package", "declared", "--against"]
    assert main([*arguments, DAY]) == 2
    assert main([*arguments, "13-1-1"]) == 2
    local_days.towns.declare_too("towns = replace(towns, ledger=None)")
    assert main([*arguments, DAY]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"towns: no row of {DAY} is published: nothing to compare."
    assert lines[1].startswith("--against is '13-1-1'; it must be a date")
    assert lines[2] == "towns has no ledger: a test without calls needs one."


def test_test_against_leaves_windows_out_and_names_what_needs_spark(local_days, capsys):
    arguments = ["test", "towns", "--package", "declared", "--against", DAY]
    at = pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC"))
    local_days.write_input(DAY, TOWNS, at=at)
    assert local_days.run(DAY) == 0
    local_days.towns.declare_too(
        "from datetime import timedelta",
        "from tidegate import EventTime, Expectation, Tumbling, Window",
        "by_day = Window('by_day', of=Tumbling(timedelta(days=1)), sql='count(*) AS n')",
        "at = EventTime('at', max_out_of_orderness=timedelta(0))",
        "towns = replace(towns, event_time=at, windows=[by_day])",
    )
    assert main(arguments) == 0
    local_days.towns.declare_too(
        "filled = Expectation('expect_column_values_to_not_be_null', column='town')",
        "towns = replace(towns, expectations=[filled])",
    )
    capsys.readouterr()
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [
        "towns: expectations need Spark. `tidegate test` has the local engine only."
    ]
