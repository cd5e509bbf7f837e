"""What `forget` removes of lookups that read the forgotten answers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.ledger.keys import key_text
from tests.jobs.commands.chaining.conftest import DAY
from tests.jobs.commands.chaining.test_chains import DOMAINS, OF_PERSONS, answer_all, stored_keys
from tidegate.__main__ import main


def test_keys_made_of_forgotten_answers_are_forgotten_with_them(firms):
    firms.declare(OF_PERSONS)
    answer_all(firms.vendors)
    firms.write_input({"domain": DOMAINS})
    assert firms.run() == 0
    assert main(["forget", "company", "--package", "chained", "--key", "key=c.example"]) == 0
    stored = {name: stored_keys(name) for name in ("company", "score", "grade")}
    assert key_text(("a.example",), hidden=True) in stored["company"]
    assert key_text(("c.example",), hidden=True) not in stored["company"]
    assert stored["score"] == {key_text(("A",), hidden=True)}
    assert stored["grade"] == {key_text(("7",), hidden=True)}  # rows of a.example have it too


SHARED = """
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "text"}, returns="c_key STRING")
c = vendor("c", keys={"key": "c_key"}, returns="score INT")
firms = table(a, b, c)
b2 = vendor("b", keys={"key": "name"}, returns="c_key STRING")
others = table(b2, name="others", input=Input(path="data/raw/others", row_id=["number"]), output=Output(path="data/published/others"))
"""


@pytest.mark.proof
def test_forget_leaves_derived_keys_that_another_enrichment_uses(firms):
    firms.declare(SHARED)
    firms.vendors.answers = {
        ("a", "x"): {"text": "X"}, ("b", "X"): {"c_key": "cx"}, ("c", "cx"): {"score": 1},
        ("a", "y"): {"text": "Y"}, ("b", "Y"): {"c_key": "cy"}, ("c", "cy"): {"score": 2},
    }  # fmt: skip
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    folder = Path(f"data/raw/others/date={DAY}")
    folder.mkdir(parents=True)
    rows = pa.table({"number": pa.array([0], pa.int64()), "name": ["X"]})
    pq.write_table(rows, folder / "part-0.parquet")
    others = ["run", "others", "--package", "chained", "--day", DAY]
    assert main(others) == 0
    keys = ["--key", "key=x", "--key", "key=y"]
    assert main(["forget", "a", "--package", "chained", *keys]) == 0
    firms.vendors.calls.clear()
    assert main(others) == 0
    assert firms.vendors.calls == []
    assert firms.run() == 0
    assert sorted(firms.vendors.calls) == [
        ("a", "x"),
        ("a", "y"),
        ("b", "Y"),
        ("c", "cx"),
        ("c", "cy"),
    ]


def test_forget_removes_derived_keys_that_no_file_contains(firms):
    """Keys that try asked: they are made again of the stored answers."""
    firms.declare(SHARED)
    firms.vendors.answers = {
        ("a", "x"): {"text": "X"}, ("b", "X"): {"c_key": "cx"}, ("c", "cx"): {"score": 1},
    }  # fmt: skip
    firms.write_input({"key": ["x"]})
    assert firms.run(command="try") == 0
    assert len(firms.vendors.calls) == 3
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert firms.run() == 0
    assert len(firms.vendors.calls) == 6


def test_forget_leaves_an_answer_whose_condition_reads_only_the_forgotten_status(firms):
    firms.declare(
        """
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "name"}, when="a_status = 'ok'", returns="score INT")
firms = table(a, b)
"""
    )
    firms.vendors.answers = {("a", "x"): {"text": "X"}, ("b", "n"): {"score": 1}}
    firms.write_input({"key": ["x"], "name": ["n"]})
    assert firms.run() == 0
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert (stored_keys("a"), stored_keys("b")) == (set(), {key_text(("n",))})


def test_forget_removes_a_key_chosen_by_a_condition_on_the_forgotten_answer(firms):
    """The key of c tells whether b was asked, and so what a answered."""
    firms.declare(
        """
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "name"}, when="text = 'X'", returns="b_text STRING")
c = vendor("c", keys={"key": "coalesce(b_text, 'not X')"}, returns="score INT")
firms = table(a, b, c)
"""
    )
    firms.vendors.answers = {("a", "x"): {"text": "Y"}, ("c", "not X"): {"score": 1}}
    firms.write_input({"key": ["x"], "name": ["n"]})
    assert firms.run() == 0
    assert stored_keys("c") == {key_text(("not X",))}
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert stored_keys("c") == set()


def test_forget_removes_the_answers_of_later_vendors_of_a_waterfall(firms):
    """They answer in place of the forgotten one."""
    firms.declare(
        """
from tidegate import Waterfall
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "name"}, returns="text STRING")
score = vendor("score", keys={"key": "firm_vendor"}, returns="score INT")
firms = table(Waterfall(name="firm", of=[a, b]), score)
"""
    )
    firms.vendors.answers = {("b", "n"): {"text": "B"}, ("score", "b"): {"score": 1}}
    firms.write_input({"key": ["x"], "name": ["n"]})
    assert firms.run() == 0
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert [stored_keys(name) for name in ("a", "b", "score")] == [set(), set(), set()]


def test_forget_removes_keys_that_no_file_contains_whatever_their_condition_reads(firms):
    firms.declare(SHARED.replace('{"key": "c_key"}', '{"key": "c_key"}, when="number >= 0"'))
    firms.vendors.answers = {
        ("a", "x"): {"text": "X"}, ("b", "X"): {"c_key": "cx"}, ("c", "cx"): {"score": 1},
    }  # fmt: skip
    firms.write_input({"key": ["x"]})
    assert firms.run(command="try") == 0
    assert stored_keys("c") == {key_text(("cx",))}
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert [stored_keys(name) for name in "abc"] == [set(), set(), set()]


def test_forget_removes_keys_of_a_skipped_lookup_that_no_file_contains(firms):
    firms.declare(
        """
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "text"}, when="number > 0", returns="b_text STRING")
c = vendor("c", keys={"key": "coalesce(b_text, text)"}, returns="score INT")
firms = table(a, b, c)
"""
    )
    firms.vendors.answers = {
        ("a", "x"): {"text": "X"}, ("b", "X"): {"b_text": "B"}, ("c", "X"): {"score": 1},
    }  # fmt: skip
    firms.write_input({"key": ["x", "x"]})  # the second row has both answers
    assert firms.run(command="try") == 0
    assert stored_keys("c") == {key_text(("X",)), key_text(("B",))}
    assert main(["forget", "a", "--package", "chained", "--key", "key=x"]) == 0
    assert [stored_keys(name) for name in "abc"] == [set(), set(), set()]
