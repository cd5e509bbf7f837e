"""Refresh: which stored answers meet a condition, and which days use them; nothing is asked
here.
"""

import datetime as dt
import shutil
import time

import pytest
from deltalake import DeltaTable

from jobs.commands import ledgers
from jobs.commands.replaying import refresh
from jobs.errors import DeclarationError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.compaction import compact
from jobs.ledger.keys import key_text
from jobs.ledger.plan import run_of_keys
from jobs.ledger.working_folders import announce
from tests.support.places import everywhere
from tidegate.__main__ import main

FIRST, SECOND = "2013-01-10", "2013-01-11"


def key(number):
    return key_text((f"town-{number}",))


def kept(towns):
    (found,) = ledgers.declared_ledgers([("declared.towns:towns", towns.enrichment)])
    return found


def found(towns, where, **between):
    matched = refresh.find(kept(towns), where, **between)
    ((_, _, days),) = matched.days
    return sorted(matched.keys), list(days)


@pytest.fixture
def stored(towns):
    """Two days with a town in common, all of them answered, one with a miss; half compacted, half
    not.
    """
    towns.store({1: {"temp_c": 0.0, "sky": "clear"}, 2: {"temp_c": 5.0}})
    compact(towns.folder)
    towns.store({3: None, 4: {"temp_c": 0.0}}, at="2013-01-11T03:00:00+00:00")
    towns.publish(FIRST, [1, 2])
    towns.publish(SECOND, [2, 3, 4])
    return towns


def test_refresh_finds_answers_by_returned_values_and_names_the_days_that_use_them(stored):
    assert found(stored, "answer.temp_c = 0") == ([key(1), key(4)], [FIRST, SECOND])
    assert found(stored, "answer.temp_c BETWEEN 4 AND 6 OR answer.temp_c IS NULL") == (
        [key(2), key(3)],
        [FIRST, SECOND],
    )
    assert found(stored, "answer.temp_c > 100") == ([], [])


def test_days_rewritten_by_another_program_count_as_users_of_each_answer(stored):
    DeltaTable("data/published/towns").optimize.z_order(["number"])
    assert found(stored, "stored.outcome = 'miss'") == ([key(3)], [FIRST, SECOND])
    assert found(stored, "answer.temp_c > 100") == ([], [])


def test_refresh_finds_answers_by_raw_response_outcome_and_time(stored):
    assert found(stored, "stored.response ->> '$.sky' = 'clear'") == ([key(1)], [FIRST])
    assert found(stored, "stored.outcome = 'miss'") == ([key(3)], [SECOND])
    assert found(stored, "stored.answered_at >= '2013-01-11'") == ([key(3), key(4)], [SECOND])
    assert found(stored, "1", first=SECOND, last=SECOND) == ([key(3), key(4)], [SECOND])
    assert found(stored, "1", last=FIRST) == ([key(1), key(2)], [FIRST, SECOND])
    assert found(stored, "stored.outcome = 'miss'", last="9999-12-31") == ([key(3)], [SECOND])


def test_refresh_finds_all_answers_of_a_run_by_the_id_that_show_prints(stored):
    stored.store({1: {"temp_c": 9.0}}, at="2013-01-12T03:00:00+00:00", run_id="wrong")
    stored.store({3: None}, at="2013-01-12T03:00:01+00:00", run_id=run_of_keys("wrong"))
    assert found(stored, "stored.run_id = 'wrong'") == ([key(1), key(3)], [FIRST, SECOND])


def test_an_answer_may_have_a_column_called_rowid(towns):
    towns.declare(returns="rowid INT")
    towns.store({1: {"rowid": 7}, 2: {"rowid": 1}})
    assert found(towns, "answer.rowid = 7") == ([key(1)], [])


def test_large_decimals_are_compared_with_all_their_digits(towns):
    towns.declare(returns="big DECIMAL(20, 0)")
    towns.store({1: {"big": 1234567890123456789}, 2: {"big": 1234567890123456790}})
    assert found(towns, "answer.big = 1234567890123456789") == ([key(1)], [])


def test_the_smallest_and_the_largest_bigint_are_compared_as_numbers(towns):
    towns.declare(returns="big BIGINT")
    towns.store({1: {"big": -(2**63)}, 2: {"big": 2**63 - 1}})
    assert found(towns, "answer.big < 0") == ([key(1)], [])
    assert found(towns, "answer.big > 0") == ([key(2)], [])


@everywhere("towns", on_store=pytest.mark.proof)
def test_refresh_judges_only_the_newest_answer_of_a_key(stored):
    stored.store({1: {"temp_c": 7.0}}, at="2013-01-12T03:00:00+00:00")
    assert found(stored, "answer.temp_c = 0") == ([key(4)], [SECOND])


@everywhere("towns", on_store=pytest.mark.proof)
def test_answers_are_marked_once_and_their_days_are_named_again_after_a_crash(stored):
    matched = refresh.find(kept(stored), "answer.temp_c = 0")
    assert refresh.expire(kept(stored), matched) == 2
    again = refresh.find(kept(stored), "answer.temp_c = 0")
    assert again.keys == ()
    assert again.days[0][2] == (FIRST, SECOND)
    # asked anew since
    stored.store({1: {"temp_c": 1.0}, 4: {"temp_c": 2.0}}, at=dt.datetime.now(dt.UTC).isoformat())
    assert found(stored, "answer.temp_c = 0") == ([], [])


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_condition_that_names_marks_finds_the_calls_whose_answers_were_lost(stored):
    now = round(dt.datetime.now(dt.UTC).timestamp() * 1e6)
    announce(stored.folder, "at work")
    for number, run in ((5, "killed"), (6, "at work")):
        mark = StoredAnswer(key(number), "asked", None, now, run)
        stored.folder.write_part(run, f"0-0-{number}", [mark])
    stored.publish("2013-01-12", [2, 5, 6], statuses={5: "unknown", 6: "unknown"})
    assert found(stored, "answer.temp_c IS NULL") == ([key(3)], [SECOND])
    assert found(stored, "stored.outcome = 'asked'") == ([key(5)], ["2013-01-12"])
    refresh.expire(kept(stored), refresh.find(kept(stored), "stored.outcome = 'asked'"))
    assert found(stored, "stored.outcome = 'asked'")[0] == []


@pytest.mark.parametrize(
    ("where", "finds_marks"),
    [
        ('stored.outcome IN ("asked", "timeout")', True),
        ("stored.outcome = 'as' || 'ked'", True),
        ("stored.answered_at < '9' AND stored.outcome LIKE 'ask%'", True),
        ("stored.outcome <> 'ok'", False),
        ("answer.temp_c IS NULL OR stored.run_id = 'asked'", False),
    ],
)
def test_a_mark_without_an_answer_meets_only_conditions_on_marks(stored, where, finds_marks):
    mark = StoredAnswer(key(5), "asked", None, round(time.time() * 1e6), "killed")
    stored.folder.write_part("killed", "0-0-5", [mark])
    assert (key(5) in refresh.find(kept(stored), where).keys) is finds_marks


def test_refresh_without_run_reports_the_answers_and_changes_nothing(stored, capsys):
    parts = stored.folder.parts()
    assert (
        main(["refresh", "weather", "--where", "answer.temp_c = 0", "--package", "declared"]) == 0
    )
    assert capsys.readouterr().out == (
        "weather: 2 stored answers meet the condition.\n"
        "  towns: 2 days use them: 2013-01-10, 2013-01-11\n"
        "Nothing was changed. With --run they are asked again, and these days run again.\n"
    )
    assert stored.folder.parts() == parts


def test_refresh_names_the_tables_that_it_does_not_run_again(stored, capsys):
    stored.declare_too(
        "other = replace(weather, name='other', service=replace(weather.service, name='other'))",
        "cities = replace(towns, name='cities', input=replace(towns.input, path=towns.output.path),",
        "    lookups=[other], output=replace(towns.output, path='data/cities'), summaries=[])",
    )
    refreshes = ["refresh", "weather", "--package", "declared", "--where"]
    assert main([*refreshes, "answer.temp_c = 0"]) == 0
    assert "  Made of these tables, and not run again here: cities. Run " in capsys.readouterr().out
    assert main([*refreshes, "answer.temp_c = 100"]) == 0
    assert "cities" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("answer.lat = 0", "no such column: answer.lat"),
        ("temp_c =", "syntax error"),
        ("1); DROP TABLE answer; --", "one statement at a time"),
        ("1 AND writefile('x', 'y')", "no such function: writefile"),
        ("answer.temp_c = 0 AND nowhere.temp_c", "no such column: nowhere.temp_c"),
    ],
)
def test_a_malformed_condition_is_refused_in_one_sentence(stored, where, message, capsys):
    with pytest.raises(DeclarationError, match=message):
        refresh.find(kept(stored), where)
    assert main(["refresh", "weather", "--where", where, "--package", "declared"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unknown_lookup_is_reported_with_the_known_lookups(stored, capsys):
    assert main(["refresh", "wether", "--where", "1", "--package", "declared"]) == 2
    assert capsys.readouterr().err == (
        "no lookup with a ledger is named 'wether'. Did you mean 'weather'? There are: weather.\n"
    )


def test_a_day_without_its_input_does_not_stop_the_refresh_of_other_days(local_days, capsys):
    days = {FIRST: ["town-1", "town-2"], SECOND: ["town-2", "town-3"], "2013-01-12": ["town-4"]}
    for day, towns in days.items():
        local_days.write_input(day, towns)
    assert local_days.run(*days) == 0
    shutil.rmtree(f"data/raw/towns/date={FIRST}")
    local_days.calls.clear()
    command = ["refresh", "weather", "--where", "answer.temp_c >= 0", "--run"]
    assert main([*command, "--package", "declared"]) == 2
    assert sorted(town for _, town, _ in local_days.calls) == ["town-2", "town-3", "town-4"]
    assert f"{FIRST}  no input " in capsys.readouterr().out.splitlines()[-1]


def test_a_repeated_refresh_calls_for_no_answer_twice(local_days):
    for day, towns in {FIRST: ["town-1", "town-2"], SECOND: ["town-3", "town-4"]}.items():
        local_days.write_input(day, towns)
    assert local_days.run(FIRST, SECOND) == 0
    local_days.calls.clear()
    command = ["refresh", "weather", "--where", "answer.temp_c >= 0", "--run"]
    command += ["--answered-before", dt.datetime.now(dt.UTC).isoformat(), "--package", "declared"]
    local_days.fails = {"town-3": 500}
    assert main(command) == 1
    local_days.fails = {}
    assert main(command) == 0
    assert main(command) == 0
    asked = [town for _, town, _ in local_days.calls]
    assert sorted(asked) == ["town-1", "town-2", "town-3", "town-3", "town-4"]


def test_a_repeated_refresh_runs_a_day_whose_answers_another_day_has_asked_for(local_days):
    for day, towns in {FIRST: ["town-1", "town-2"], SECOND: ["town-2"]}.items():
        local_days.write_input(day, towns)
    assert local_days.run(FIRST, SECOND) == 0
    command = ["refresh", "weather", "--where", "answer.temp_c >= 0", "--run"]
    command += ["--answered-before", dt.datetime.now(dt.UTC).isoformat(), "--package", "declared"]
    local_days.fails = {"town-1": 500}  # holds the first day back, before the second
    assert main(command) != 0
    local_days.fails = {}
    assert main(command) == 0
    rows = DeltaTable("data/published/towns").to_pyarrow_table().to_pylist()
    shown = {row["temp_c"] for row in rows if row["town"] == "town-2"}
    answers = [answer["temp_c"] for _, town, answer in local_days.calls if town == "town-2"]
    assert len(answers) == 2
    assert shown == {answers[-1]}
