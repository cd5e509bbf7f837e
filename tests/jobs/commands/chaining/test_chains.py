"""Lookups that read the answers of lookups before them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_quality.day import check
from jobs.declare.finding import extras
from jobs.input.keys.arrow_expressions import evaluate
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.written_answers import StoredAnswers
from tests.jobs.commands.chaining.conftest import DAY
from tidegate.__main__ import main

CHAIN = """
company = vendor("company", keys={"key": "lower(trim(domain))"}, returns="company_id STRING, country STRING")
score = vendor("score", keys={"key": "company_id"}, returns="score INT", when="country = 'DE'")
grade = vendor("grade", keys={"key": "cast(score as string)"}, returns="grade STRING")
firms = table(company, score, grade)
"""
OF_PERSONS = CHAIN.replace(
    "table(company, score, grade)", "table(company, score, grade, pii=['domain'])"
)
DOMAINS = [" A.example", "b.example", "a.example", "c.example", "d.example", None, "e.example"]


def answer_all(vendors):
    vendors.answers = {
        ("company", "a.example"): {"company_id": "A", "country": "DE"},
        ("company", "b.example"): {"company_id": "B", "country": "FR"},
        ("company", "c.example"): {"company_id": "C", "country": "DE"},
        ("company", "d.example"): 500,
        ("score", "A"): {"score": 7},
        ("score", "C"): {"score": 7},
        ("grade", "7"): {"grade": "good"},
    }


def test_each_distinct_key_of_each_level_is_called_once(firms):
    firms.declare(CHAIN)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS})
    assert firms.run() == 0
    assert firms.vendors.asked("company") == [f"{letter}.example" for letter in "abcde"]
    assert firms.vendors.asked("score") == ["A", "C"]
    assert firms.vendors.asked("grade") == ["7"]
    statuses = [
        (row["company_status"], row["score_status"], row["grade_status"]) for row in firms.rows()
    ]
    assert statuses == [
        ("ok", "ok", "ok"),
        ("ok", "skipped", "skipped"),
        ("ok", "ok", "ok"),
        ("ok", "ok", "ok"),
        ("error", "skipped", "skipped"),
        ("skipped", "skipped", "skipped"),
        ("miss", "skipped", "skipped"),
    ]
    assert [row["grade"] for row in firms.rows()] == [
        "good",
        None,
        "good",
        "good",
        None,
        None,
        None,
    ]
    firms.vendors.calls.clear()
    assert firms.run() == 0
    assert firms.vendors.calls == [("company", "d.example")]  # an error is not stored


def test_equal_keys_of_two_levels_get_the_answers_of_their_lookup(firms):
    firms.declare(
        """
a = vendor("a", keys={"key": "key"}, returns="x STRING")
b = vendor("b", keys={"key": "key"}, returns="y STRING", when="a_status = 'miss'")
c = vendor("c", keys={"key": "key"}, returns="z STRING", when="b_status = 'miss'")
firms = table(a, b, c)
"""
    )
    firms.vendors.answers = {
        ("a", "k1"): {"x": "A"},
        ("b", "k2"): {"y": "B"},
        ("c", "k3"): {"z": "C"},
    }
    firms.write_input({"key": ["k1", "k2", "k3", "k1", "k2", "k3", "k4"]})
    assert firms.run() == 0
    assert [(row["x"], row["y"], row["z"]) for row in firms.rows()] == [
        ("A", None, None), (None, "B", None), (None, None, "C"),
        ("A", None, None), (None, "B", None), (None, None, "C"), (None, None, None),
    ]  # fmt: skip
    assert firms.vendors.asked("b") == ["k2", "k3", "k4"]
    assert firms.vendors.asked("c") == ["k3", "k4"]


def test_a_plan_counts_unknown_keys_of_a_level_as_an_upper_bound(firms, capsys):
    firms.declare(CHAIN)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS})
    assert firms.run(command="plan") == 0
    before = capsys.readouterr().out
    assert "at most 6   6 rows have a key made of answers not stored\n" in before
    assert firms.vendors.calls == []
    assert firms.run() == 0
    capsys.readouterr()
    assert firms.run(command="plan") == 0
    after = capsys.readouterr().out
    assert "distinct keys      2 of 3 rows" in after
    assert "at most 1   1 row has a key made of answers not stored" in after  # d.example failed
    firms.write_input({"domain": [f"{number}.example" for number in range(14)]}, day="2026-01-06")
    assert firms.run(command="plan", day="2026-01-06") == 0
    later = capsys.readouterr().out  # 3 of the 7 rows of the last run had a key of score
    assert "at most 14   14 rows have a key made of answers not stored; about 6 as on" in later


def test_try_calls_the_lookups_of_a_row_level_by_level(firms, capsys):
    firms.declare(CHAIN)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS[:2]})
    assert main(["try", "firms", "--package", "chained", "--day", DAY]) == 0
    assert firms.vendors.asked("score") == ["A"]
    assert firms.vendors.asked("grade") == ["7"]
    output = capsys.readouterr().out
    assert "good" in output
    assert "skipped: its condition does not hold, or a key is null" in output
    assert main(["try", "firms", "--package", "chained", "--lookup", "score"]) != 0
    assert "reads answers of other lookups" in capsys.readouterr().err


FALSIFIED = {
    "_score_key": (lambda keys: [{"key": "Z"}, *keys[1:]], "score__answers_match"),
    "company_id": (lambda ids: ["Z", *ids[1:]], "score__answers_match"),
    "country": (lambda countries: ["FR", *countries[1:]], "score__answers_match"),  # read by `when`
    "score": (lambda scores: [8, *scores[1:]], "grade__answers_match"),
}


def test_a_falsified_key_answer_or_condition_turns_checks_red(firms):
    firms.declare(CHAIN)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS})
    assert firms.run() == 0
    (file,) = firms.record().facts.files
    honest = Path(file).read_bytes()
    assert red_with(firms, "score", lambda values: values) == set()
    for column, (change, red) in FALSIFIED.items():
        assert red in red_with(firms, column, change), column
        Path(file).write_bytes(honest)


def test_a_row_whose_condition_does_not_hold_is_skipped_without_a_null_key(firms, capsys):
    firms.declare(
        """
company = vendor("company", keys={"key": "domain"}, returns="company_id STRING", when="wanted", on_null_key="fail")
firms = table(company, tolerance=Tolerance(error=0.5))
"""
    )
    firms.vendors.answers = {("company", "a"): {"company_id": "A"}, ("company", "b"): 500}
    firms.write_input({"domain": ["a", "b", "x", None], "wanted": [True, True, False, None]})
    assert firms.run() == 0
    assert [row["company_status"] for row in firms.rows()] == ["ok", "error", "skipped", "skipped"]
    firms.write_input({"domain": ["a", "b", None], "wanted": [True, True, True]})
    assert firms.run() != 0
    assert "lookup company: a key is null, and on_null_key is 'fail'" in capsys.readouterr().err


def test_tolerated_shares_count_only_rows_whose_condition_holds(firms, capsys):
    firms.declare(
        """
company = vendor("company", keys={"key": "domain"}, returns="company_id STRING", when="wanted")
firms = table(company, tolerance=Tolerance(error=0.4))
"""
    )
    firms.vendors.answers = {("company", "a"): {"company_id": "A"}, ("company", "b"): 500}
    firms.write_input({"domain": ["a", "b", "x", "y"], "wanted": [True, True, False, None]})
    assert firms.run() != 0
    assert "error: 1 row of 2, 50.00%; tolerated 40.00%" in capsys.readouterr().err


REFUSED = {
    "a time of an answer": (
        'b = vendor("b", keys={"key": "cast(a_answered_at as string)"}, returns="y STRING")',
        "keys.key reads 'a_answered_at', which differs after each call",
    ),
    "its own answer": (
        'b = vendor("b", keys={"key": "y"}, returns="y STRING")',
        "keys.key reads 'y', its own column",
    ),
    "a later lookup": (
        'b = vendor("b", keys={"key": "y"}, returns="z STRING")\na, b = b, replace(a, returns="y STRING")',
        "keys.key reads 'y', lookup a's column; a lookup reads only lookups before it",
    ),
    "no cache below": (
        'a = replace(a, cache=None)\nb = vendor("b", keys={"key": "x"}, returns="y STRING")',
        "lookup a has cache=None",
    ),
    "an expression": (
        'b = vendor("b", keys={"key": "reverse(x)"}, returns="y STRING")',
        "keys.key: 'reverse(x)' cannot be evaluated beside the answers of lookup a",
    ),
    "a key that Arrow compares otherwise": (
        'a = replace(a, returns="x DOUBLE")\nb = vendor("b", keys={"key": "x"}, returns="y STRING")',
        "keys.key: 'x' is double, which a key made of answers cannot be",
    ),
}


def test_a_chain_without_pyspark_is_refused_with_the_line_that_installs_it(
    firms, capsys, monkeypatch
):
    firms.declare(
        'a = vendor("a", keys={"key": "domain"}, returns="x STRING")\n'
        'firms = table(a, vendor("b", keys={"key": "x"}, returns="y STRING"))\n'
    )
    firms.write_input({"domain": ["a"]})
    monkeypatch.setitem(extras.EXTRAS, "spark", ("PySpark", "pyspark_is_not_here"))
    assert main(["plan", "firms", "--package", "chained", "--day", DAY]) == 2
    assert capsys.readouterr().err == (
        'firms: a chain needs PySpark; it is not installed here: pip install "tidegate[spark]".\n'
    )


@pytest.mark.parametrize("refused", REFUSED)
def test_check_refuses_a_chain_that_cannot_run(firms, capsys, refused):
    text, sentence = REFUSED[refused]
    first = 'from dataclasses import replace\na = vendor("a", keys={"key": "domain"}, returns="x STRING")'
    firms.declare(f"{first}\n{text}\nfirms = table(a, b)\n")
    firms.write_input({"domain": ["a"]})
    assert main(["check", "--package", "chained", "--day", DAY]) != 0
    output = capsys.readouterr()
    assert sentence in output.out + output.err


def test_keys_made_of_personal_answers_are_hashed_too(firms, capsys):
    firms.declare(OF_PERSONS)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS})
    assert firms.run() == 0
    assert {lookup.name: lookup.hidden_key for lookup in firms.enrichment.facts().lookups} == {
        "company": True, "score": True, "grade": True,
    }  # fmt: skip
    for name in ("company", "score", "grade"):
        keys = stored_keys(name)
        assert keys, name
        assert not any("example" in key or key in ('["A"]', '["7"]') for key in keys), name


def stored_keys(lookup):
    parts = [pq.read_table(file) for file in Path(f"data/ledger/{lookup}").rglob("*.parquet")]
    return {key for part in parts for key in part["key"].to_pylist()}


def red_with(firms, name, change):
    """The red checks of the last run with a column changed in its file."""
    record = firms.record()
    (file,) = record.facts.files
    table = pq.read_table(file, partitioning=None)
    place = table.schema.get_field_index(name)
    values = change(table[name].to_pylist())
    table = table.set_column(place, table.schema.field(name), pa.array(values, table[name].type))
    pq.write_table(table, file)
    declared, run = firms.enrichment, record.facts.run_id
    kept = {
        lookup.name: (lookup, plan_ledger(declared, lookup, run, RunOptions()))
        for lookup in declared.lookups
    }
    stored = StoredAnswers(kept, run, record.facts.started_at)
    judged = check(None, record.facts, record.figures, stored, evaluate)
    return {verdict.check for verdict in judged.verdicts if verdict.status == "failed"}


def test_a_key_made_of_a_failed_answer_does_not_count_as_a_null_key(firms, capsys):
    firms.declare(
        """
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "text"}, returns="score INT", on_null_key="fail")
firms = table(a, b, tolerance=Tolerance(error=0.5))
"""
    )
    firms.vendors.answers = {("a", "x"): {"text": "A"}, ("a", "e"): 500, ("b", "A"): {"score": 1}}
    firms.write_input({"key": ["x", "e"]})
    assert firms.run() == 0
    assert [row["b_status"] for row in firms.rows()] == ["ok", "skipped"]
    firms.vendors.answers |= {("a", "n"): {"text": None}, ("a", "y"): {"text": "Y"}}
    firms.write_input({"key": ["x", "e", "n", "y"]})
    firms.vendors.calls.clear()
    assert firms.run() != 0
    assert "lookup b: a key is null, and on_null_key is 'fail'" in capsys.readouterr().err
    assert firms.vendors.asked("b") == []  # seen before a call
