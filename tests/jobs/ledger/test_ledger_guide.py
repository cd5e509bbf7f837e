"""The example of docs/ledger.md, as it stands there, and the layout that it draws."""

import re
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from jobs.declare.answers.answer_json import dump
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.compaction import compact
from jobs.ledger.job_files import Intent, JobFiles
from jobs.ledger.store import LedgerFolder
from tests.support.documents import blocks

GUIDE = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text()
AT = 1_357_794_000_000_000


def test_the_queries_of_the_ledger_guide_run_without_tidegate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = LedgerFolder("data/ledger", "weather", "0123456789abcdef")
    answers = [
        StoredAnswer(
            f'["JFK",{hour}]',
            "ok",
            dump({"temp_c": hour / 2, "wind": {"speed": 5.1}}),
            AT + hour,
            "run-1",
        )
        for hour in range(10)
    ]
    folder.write_part(
        "run-1", "0-0", [*answers, StoredAnswer('["LGA",1]', "miss", None, AT, "run-1")]
    )
    compact(folder, grace=timedelta(days=1))  # all is there twice now
    later = StoredAnswer(
        '["JFK",3]', "ok", dump({"temp_c": 99.0, "wind": {"speed": 0.0}}), AT + 100, "run-2"
    )
    folder.write_part("run-2", "0-0", [later])
    # as a lookup with vendor jobs has it
    JobFiles(folder).write_intent("1f0c", Intent(pa.table({"key": ['["JFK",3]']}), "run-2", 0.0))
    (code,) = blocks("docs/ledger.md", "python")
    names = {}
    exec(code, names)
    found = names["answers"].set_index("key")
    assert len(found) == 10
    assert found.loc['["JFK",4]', "temp_c"] == 2.0
    assert found.loc['["JFK",3]', ["temp_c", "wind.speed"]].tolist() == [99.0, 0.0]
    assert str(found.answered_at.dt.tz) == "UTC"
    assert (names["newest"].outcome == "miss").sum() == 1
    (query,) = blocks("docs/ledger.md", "sql")
    rows = duckdb.sql(query).fetchall()
    temperatures = {key: float(text) for key, _, text in rows}
    assert temperatures == found["temp_c"].to_dict()
    assert len(rows) == 10


def test_the_layout_of_a_ledger_is_the_layout_of_the_guide(tmp_path):
    folder = LedgerFolder(str(tmp_path), "weather", "0123456789abcdef")
    folder.write_part("run-1", "0-0-0f3a9c21-00000", [StoredAnswer("[1]", "ok", b"1", AT, "run-1")])
    compact(folder)
    shapes = [re.sub(r"\d{17}(-[0-9a-f]{8})?", _in_the_guide, name) for name in folder.names()]
    assert shapes == [
        "compacted/<number>-<token>/00000.parquet",
        "compacted/<number>/complete.json",
        "parts/run-1/0-0-0f3a9c21-00000.parquet",
    ]
    for line in ("/compacted/<number>-<token>/00000.parquet", "/compacted/<number>/complete.json"):
        assert line in GUIDE


def _in_the_guide(name):
    return "<number>-<token>" if name[1] else "<number>"
