"""Answers with a MAP column, alone and in a waterfall."""

from deltalake import DeltaTable

from tests.jobs.commands.chaining.conftest import DAY
from tests.jobs.commands.chaining.test_chains import red_with

MAPS = """
from tidegate import Waterfall
R = "tags MAP<STRING, ARRAY<INT>>, id STRING"
a, b = [vendor(name, keys={"key": "key"}, returns=R) for name in "ab"]
c = vendor("c", keys={"key": "id"}, returns="names MAP<STRING, STRING>")
firms = table(Waterfall(name="firm", of=[a, b]), c)
"""


def test_a_map_is_published_and_read_back_from_the_ledger(firms):
    firms.declare(MAPS)
    firms.vendors.answers = {
        ("a", "x"): {"tags": {"é": [1, None], "": None}, "id": "i"},
        ("b", "y"): {"tags": {}, "id": None},
        ("a", "z"): {"tags": None, "id": "j"},
        ("a", "w"): {"tags": [1], "id": "j"},
        ("c", "i"): {"names": {"de": "Firma", "fr": None}},
        ("c", "j"): {"names": {"de": 5}},
    }
    firms.write_input({"key": ["x", "y", "z", "w", "x"]})
    for _ in range(2):
        assert firms.run() == 0
        assert firms.red() == {}
        table = DeltaTable("data/published/firms").to_pyarrow_table().sort_by("number")
        tags = [("é", [1, None]), ("", None)]
        assert table["tags"].to_pylist() == [tags, [], None, None, tags]
        assert table["firm_status"].to_pylist() == ["ok", "ok", "ok", "error", "ok"]
        assert table["names"].to_pylist()[0] == [("de", "Firma"), ("fr", None)]
        assert table["c_status"].to_pylist() == ["ok", "skipped", "error", "skipped", "ok"]
    errors = [row["_a_error"] for row in firms.rows()]
    assert "tags: expected MAP, got [1]" in errors[3]
    assert firms.record().facts.day == DAY
    wrong = [[("é", [1, 2]), ("", None)], [], None, None, tags]
    assert "a__answers_match" in red_with(firms, "a_tags", lambda _: wrong)
