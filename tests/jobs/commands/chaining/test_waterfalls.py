"""Vendors with the same columns, asked one after the other until an answer is accepted."""

import random

import pytest
from deltalake import DeltaTable

from jobs.commands.explaining.explain import explain
from tests.jobs.commands.chaining.conftest import DAY
from tests.jobs.commands.chaining.test_chains import red_with
from tidegate.__main__ import main

RETURNS = "text STRING, confidence DOUBLE"
WATERFALL = f"""
from tidegate import Waterfall
a = vendor("a", keys={{"key": "key_a"}}, returns="{RETURNS}")
b = vendor("b", keys={{"key": "key_b"}}, returns="{RETURNS}", when="wanted")
c = vendor("c", keys={{"key": "key_c"}}, returns="{RETURNS}")
score = vendor("score", keys={{"key": "concat(firm_vendor, '-', text)"}}, when="firm_status = 'ok'", returns="score INT")
firms = table(Waterfall(name="firm", of=[a, b, c], accept="confidence >= 0.7"), score)
"""
CONFIDENCES = [0.7, 0.6999999999999999, 0.0, 1, None, "NaN", -0.0, 1e300]


def draw_answer(draw, key):
    kind = draw.choices(["ok", "miss", "error"], [6, 3, 1])[0]
    if kind == "ok":
        text = draw.choice([key, "", None])
        return {"text": text, "confidence": draw.choice(CONFIDENCES)}
    return 500 if kind == "error" else None


def expected(row, answers):
    """The status, vendor and answer that readers see: the reference."""
    asked, last = None, ("miss", None, None)
    for vendor in "abc":
        key = row[f"key_{vendor}"]
        if key is None or (vendor == "b" and not row["wanted"]):
            continue
        asked, answer = vendor, answers.get((vendor, key))
        if key == "" or answer == 500 or (answer and answer["confidence"] == "NaN"):
            return "error", None, None  # no address has an empty part, and no DOUBLE is such a text
        if answer is not None:
            last = "ok", vendor, answer
            if answer["confidence"] is not None and answer["confidence"] >= 0.7:
                return last
    return last if asked else ("skipped", None, None)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.proof) for n in range(2, 22))]
)
def test_a_reference_model_publishes_the_same_vendor_and_columns(firms, seed):
    draw = random.Random(seed)
    firms.declare(WATERFALL)
    keys = ["", *(f"k{number}" for number in range(60))]
    rows = [
        {f"key_{vendor}": draw.choice([None, *keys]) for vendor in "abc"}
        | {"wanted": draw.choice([True, True, False, None])}
        for _ in range(250)
    ]
    answers = {(vendor, key): draw_answer(draw, key) for vendor in "abc" for key in keys}
    firms.vendors.answers = answers
    firms.vendors.answers |= {("score", key): {"score": 1} for key in ("a-", "b-k1")}
    firms.write_input({name: [row[name] for row in rows] for name in rows[0]})
    assert firms.run() == 0
    found = firms.rows()
    for row, got in zip(rows, found, strict=True):
        status, vendor, answer = expected(row, answers)
        columns = (None, None) if answer is None else (answer["text"], answer["confidence"])
        of_row = got["firm_status"], got["firm_vendor"], got["text"], got["confidence"]
        assert of_row == (status, vendor, *columns), row
        assert got["text"] != "" or columns[0] == ""  # and no null
        assert (got["score_status"] != "skipped") == (status == "ok" and columns[0] is not None)
    calls = firms.vendors.calls
    assert len(calls) == len(set(calls))  # each distinct key of each vendor once
    wanted = {("b", row["key_b"]) for row in rows if asks_b(row, answers)}
    assert {call for call in calls if call[0] == "b"} == wanted


def asks_b(row, answers):
    if not row["key_b"] or not row["wanted"]:
        return False
    status, _, answer = expected({**row, "key_b": None, "key_c": None}, answers)
    refused = status == "ok" and (answer["confidence"] is None or answer["confidence"] < 0.7)
    return refused or status in ("miss", "skipped")


PLAIN = """
from tidegate import Waterfall
a = vendor("a", keys={"key": "key"}, returns="text STRING")
b = vendor("b", keys={"key": "key"}, returns="text STRING")
firms = table(Waterfall(name="firm", of=[a, b]))
"""


def test_a_comment_at_the_end_of_a_vendors_condition_is_no_part_of_it(firms):
    firms.declare(
        PLAIN.replace('a = vendor("a",', """a = vendor("a", when="key <> 'z' -- not z",""")
    )
    a, b = firms.enrichment.lookups
    assert {name for field, name in a.columns_read() if field == "when"} == {"key"}
    assert {name for field, name in b.columns_read() if field == "when"} == {"a_status"}


@pytest.mark.parametrize("failing", [0, 5, 10])
def test_no_vendor_is_called_for_a_row_whose_first_vendor_failed(firms, failing):
    firms.declare(PLAIN)
    keys = [f"k{number}" for number in range(10)]
    firms.vendors.answers = {("a", key): 500 for key in keys[:failing]}
    firms.vendors.answers |= {("b", key): {"text": key} for key in keys}
    firms.write_input({"key": keys})
    assert firms.run() == 0
    assert firms.vendors.asked("b") == sorted(keys[failing:])  # their first vendor missed
    assert [row["firm_status"] for row in firms.rows()] == ["error"] * failing + ["ok"] * (
        10 - failing
    )
    firms.vendors.answers = {("a", key): {"text": "a"} for key in keys}
    firms.vendors.calls.clear()
    assert firms.run(command="replay") == 0
    assert firms.vendors.asked("a") == sorted(keys[:failing])
    assert firms.vendors.asked("b") == []


def test_readers_see_the_columns_once(firms, capsys):
    firms.declare(PLAIN)
    firms.vendors.answers = {("a", "x"): {"text": "A"}, ("b", "y"): {"text": "B"}}
    firms.write_input({"key": ["x", "y", "z"]})
    assert firms.run() == 0
    table = DeltaTable("data/published/firms").to_pyarrow_table().sort_by("number")
    assert table.column_names == [
        "number", "key", "text", "firm_status", "firm_answered_at", "firm_vendor", "date",
    ]  # fmt: skip
    assert table["text"].to_pylist() == ["A", "B", None]
    assert table["firm_vendor"].to_pylist() == ["a", "b", None]
    assert table["firm_status"].to_pylist() == ["ok", "ok", "miss"]
    assert [time is None for time in table["firm_answered_at"].to_pylist()] == [False, False, False]
    output = capsys.readouterr()
    sentence = "a 1 of 3 asked, 0 refused, 2 missed; b 1 of 2 asked, 0 refused, 1 missed"
    assert sentence in output.out + output.err


def test_a_vendor_takes_over_after_a_timeout_only_where_that_is_declared(firms):
    firms.declare(PLAIN.replace("of=[a, b]", "of=[a, b], spill_on=['error']"))
    firms.vendors.answers = {("a", "x"): 500, ("a", "y"): 500, ("b", "x"): {"text": "B"}}
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    found = [(row["firm_status"], row["firm_vendor"], row["text"]) for row in firms.rows()]
    assert found == [("ok", "b", "B"), ("error", None, None)]  # a may still have y


ODD_NAMES = """
from tidegate import Waterfall
answer = dict(
    keys={"key": "key"},
    returns="`annual sales, net` INT, site STRUCT<`Web address`: STRING>",
    paths={"annual sales, net": "$.sales"},
)
score = vendor("score", keys={"key": "site.`Web address`"}, returns="score INT",
               when="`annual sales, net` > 20 AND firm_vendor = 'b'")
firms = table(
    Waterfall(name="firm", of=[vendor("a", **answer), vendor("b", **answer)],
              accept="`annual sales, net` > 10"),
    score,
)
"""


def test_columns_and_fields_of_a_waterfall_may_have_any_name_that_ddl_can_write(firms):
    firms.declare(ODD_NAMES)
    for at, key, sales in (("a", "x", 5), ("b", "x", 30), ("a", "y", 50)):
        answer = {"sales": sales, "site": {"Web address": f"{at}.example"}}
        firms.vendors.answers[at, key] = answer
    firms.vendors.answers["score", "b.example"] = {"score": 7}
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    found = [(row["firm_vendor"], row["annual sales, net"], row["score"]) for row in firms.rows()]
    assert found == [("b", 30, 7), ("a", 50, None)]


def test_a_wrong_vendor_or_answer_in_the_files_turns_checks_red(firms):
    firms.declare(PLAIN)
    firms.vendors.answers = {("a", "x"): {"text": "A"}, ("b", "y"): {"text": "B"}}
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    assert red_with(firms, "text", lambda values: values) == set()
    assert red_with(firms, "text", lambda _: ["A", "C"]) == {"firm__vendor_chosen"}
    assert red_with(firms, "text", lambda _: ["A", "B"]) == set()
    assert red_with(firms, "firm_vendor", lambda _: ["b", "b"]) == {"firm__vendor_chosen"}
    assert red_with(firms, "firm_vendor", lambda _: ["a", "b"]) == set()
    times = [row["firm_answered_at"] for row in firms.rows()]
    assert red_with(firms, "firm_answered_at", lambda _: [None, times[1]]) == {
        "firm__vendor_chosen"
    }
    assert red_with(firms, "firm_answered_at", lambda _: times) == set()
    assert red_with(firms, "firm_status", lambda _: ["miss", "ok"]) == {"firm__vendor_chosen"}


REFUSED = {
    "other columns": ('b = replace(b, returns="other STRING")', "all must return the same columns"),
    "one vendor": ("of = [a]", "of has 1 lookups; a waterfall needs at least 2"),
    "throttling": (
        "spill_on = ['throttled']",
        "spill_on has 'throttled'; it can have 'timeout', 'error', 'outage'",
    ),
    "no cache": (
        "of = [replace(a, cache=None), b]",
        "waterfall firm: of: lookup a has cache=None, and the next vendor is asked by its answer",
    ),
    "another column": (
        "accept = 'number > 1'",
        "accept reads 'number', which is not a column of an answer",
    ),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_check_refuses_a_waterfall_that_cannot_run(firms, capsys, refused):
    text, sentence = REFUSED[refused]
    given = f"from dataclasses import replace\nof = None\naccept = None\nspill_on = []\n{text}\n"
    more = "of=of or [a, b], accept=accept, spill_on=spill_on"
    firms.declare(PLAIN.replace("firms = ", f"{given}firms = ").replace("of=[a, b]", more))
    firms.write_input({"key": ["a"]})
    assert main(["check", "--package", "chained", "--day", DAY]) != 0
    output = capsys.readouterr()
    assert sentence in output.out + output.err


SPILLED = """
from tidegate import Waterfall
a = vendor("a", keys={"key": "key"}, returns="text STRING, confidence DOUBLE")
b = vendor("b", keys={"key": "key"}, returns="text STRING, confidence DOUBLE")
firms = table(
    Waterfall(name="firm", of=[a, b], spill_on=["error"], accept="confidence >= 0.5"),
    tolerance=Tolerance(error=0.5),
)
"""


@pytest.mark.parametrize("accept", ["0.5", "0.7"])
def test_a_remap_that_would_take_a_waterfalls_answers_away_is_held_back(firms, accept):
    """a failed for x, and errors are not stored; a's answer to y is refused by a stricter rule."""
    firms.declare(SPILLED)
    firms.vendors.answers = {
        ("a", "x"): 500, ("b", "x"): {"text": "B", "confidence": 1},
        ("a", "y"): {"text": "A", "confidence": 0.6},
    }  # fmt: skip
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    firms.declare(SPILLED.replace(">= 0.5", f">= {accept}"))
    assert main(["remap", "firms", "--package", "chained", "--from", DAY]) == 1
    assert "would lose" in firms.record().reason
    shown = DeltaTable("data/published/firms").to_pyarrow_table().sort_by("number")
    assert shown["text"].to_pylist() == ["B", "A"]


def test_an_answer_of_a_vendor_is_explained_beside_that_vendor(firms):
    firms.declare(SPILLED)
    firms.vendors.answers = {("a", "x"): {"text": "A", "confidence": 1}}
    firms.write_input({"key": ["x"]})
    assert firms.run() == 0
    found = explain(firms.enrichment, {"number": "0"})
    assert [lookup.columns for lookup in found.lookups] == [
        {"a_text": "A", "a_confidence": 1.0},
        {"b_text": None, "b_confidence": None},
    ]
    assert not any(name.startswith(("a_", "b_")) for name in found.row)
    assert found.lookups[1].stored == (
        "not asked: its condition does not hold, a vendor before it answered or failed, or the row "
        "has no key"
    )


def test_explain_claims_no_key_of_a_vendor_that_was_not_asked(firms, capsys):
    """The vendor before it failed, so the files hold no key for it although the row has one."""
    firms.declare(SPILLED.replace(', spill_on=["error"]', ""))
    firms.vendors.answers = {("a", "x"): 500}
    firms.write_input({"key": ["x", "y", "z"]})
    assert firms.run() == 0
    assert explain(firms.enrichment, {"number": "0"}).lookups[1].key is None
    assert main(["explain", "firms", "--package", "chained", "--row", "number=0"]) == 0
    told = capsys.readouterr().out
    assert "key from key" in " ".join(told.split())
    assert "key=null" not in told
    assert "a vendor before it answered or failed" in " ".join(told.split())


def test_a_failure_that_the_next_vendor_repaired_does_not_count_in_the_tolerance(firms):
    firms.declare(SPILLED.replace("error=0.5", "error=0.0"))
    firms.vendors.answers = {("a", "x"): 500, ("b", "x"): {"text": "B", "confidence": 1}}
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    firms.vendors.answers[("b", "x")] = {
        "text": "B",
        "confidence": 0.1,
    }  # refused: a's failure stays
    firms.declare(SPILLED.replace("error=0.5", "error=0.0").replace('"b", ', '"b", version=2, '))
    assert firms.run() == 1
    assert set(firms.red()) == {"a__errors_tolerated"}


def test_a_replay_keeps_the_answer_of_the_next_vendor_where_the_first_one_fails(firms):
    more = 'vendor("a", on_miss="dead_letter", '
    firms.declare(SPILLED.replace('vendor("a", ', more).replace(', spill_on=["error"]', ""))
    firms.vendors.answers = {("b", "x"): {"text": "B", "confidence": 1}}
    firms.write_input({"key": ["x", "y"]})
    assert firms.run() == 0
    firms.vendors.answers[("a", "x")] = 500
    assert firms.run(command="replay") == 1
    assert "waterfall firm: 1 row has an answer" in firms.record().reason
    shown = DeltaTable("data/published/firms").to_pyarrow_table().sort_by("number")
    assert shown["text"].to_pylist() == ["B", None]


def test_the_price_per_found_key_counts_the_calls_of_this_run(firms, capsys):
    price = 'service=Service(name="a", url=Env("VENDOR_URL"), max_concurrency=4, prices=[Price("0.01 USD", per="item")]), '
    text = PLAIN.replace("Waterfall", "Price, Waterfall", 1)
    firms.declare(text.replace('vendor("a", ', f'vendor("a", {price}'))
    firms.vendors.answers = {("a", f"k{number}"): {"text": "A"} for number in range(3)}
    firms.write_input({"key": ["k0", "k1", "k2", "k2"]})
    assert firms.run() == 0
    assert "a 4 of 4 asked, 0 refused, 0 missed, 0.01 USD per key found" in capsys.readouterr().err
    firms.write_input({"key": ["k0", "k1", "k2", "k3"]})
    assert firms.run() == 0
    output = capsys.readouterr().err
    assert "a 3 of 4 asked, 0 refused, 1 missed, 0.01 USD and no key found" in output


LATER = """
score = vendor("score", keys={"key": "text"}, when="confidence >= 0.9", returns="score INT")
firms = table(Waterfall(name="firm", of=[a, b]), score)
"""


def test_a_later_condition_reads_a_double_column_of_the_waterfall(firms):
    firms.declare(SPILLED + LATER)
    firms.vendors.answers = {
        ("a", "x"): {"text": "A", "confidence": 0.95}, ("b", "y"): {"text": "B", "confidence": 0.5},
        ("b", "z"): {"text": "C", "confidence": 0.9},
    }  # fmt: skip
    firms.write_input({"key": ["x", "y", "z", "w"]})
    assert firms.run() == 0
    assert firms.vendors.asked("score") == ["A", "C"]


STRUCTS = """
from tidegate import Waterfall
a, b = (
    vendor(name, keys={"key": "key"}, returns="place STRUCT<town: STRING, grade: INT>")
    for name in "ab"
)
score = vendor("score", keys={"key": "lower(place.town)"}, when="Place.grade > 1", returns="score INT")
firms = table(Waterfall(name="firm", of=[a, b], accept="place.town IS NOT NULL"), score)
"""


def test_conditions_and_a_later_key_read_fields_of_a_waterfalls_struct(firms):
    firms.declare(STRUCTS)
    places = {"a": ["Rom", None, "Ulm"], "b": ["Bonn", "Kiel", "Jena"]}
    firms.vendors.answers = {
        (vendor, key): {"place": {"town": town, "grade": int(key)}}
        for vendor, towns in places.items()
        for key, town in zip("321", towns, strict=True)
    }
    firms.write_input({"key": ["3", "2", "1"]})
    assert firms.run() == 0
    assert [row["place"]["town"] for row in firms.rows()] == ["Rom", "Kiel", "Ulm"]
    assert (firms.vendors.asked("b"), firms.vendors.asked("score")) == (["2"], ["kiel", "rom"])


def test_texts_to_users_have_the_keys_that_the_user_wrote(firms, capsys):
    firms.declare(SPILLED + LATER.replace('"text"', '"lower(text)"'))
    assert "lower(text), when confidence >= 0.9" in repr(firms.enrichment)
    assert main(["show", "firms", "--package", "chained"]) == 0
    output = capsys.readouterr().out
    assert "keys        key = lower(text)" in output
    assert "CASE" not in output
    assert "a_status" not in output
    firms.write_input({"key": ["x"]})
    assert firms.run() == 0
    assert explain(firms.enrichment, {"number": "0"}).lookups[2].expressions == {
        "key": "lower(text)"
    }


def test_a_key_made_of_the_time_of_a_waterfalls_answer_is_refused(firms, capsys):
    firms.declare(SPILLED + LATER.replace('"text"', '"cast(firm_answered_at as string)"'))
    assert main(["check", "--package", "chained", "--day", DAY]) != 0
    output = capsys.readouterr()
    assert "reads 'firm_answered_at', which differs after each call" in output.out + output.err
