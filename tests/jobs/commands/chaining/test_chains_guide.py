"""The example of docs/chains.md, as it stands there, at real services."""

from pathlib import Path

from aiohttp import web
from deltalake import DeltaTable

from tests.support.documents import blocks
from tidegate.__main__ import main

GUIDE = (Path(__file__).parents[4] / "docs" / "chains.md").read_text()
DAY = "2026-11-01"
ANSWERS = {
    "/domains/a.example": {"company_id": "A", "employees": 50},
    "/domains/small.example": {"company_id": "S", "employees": 3},
    "/companies/DE/Beta": {"company_id": "B", "employees": 20},
    "/companies/A/score": {"score": 7},
}
ROWS = {  # domain, name and country -> company_id, vendor, status of company, score, its status
    (" A.example", "Alpha", "DE"): ("A", "by_domain", "ok", 7, "ok"),
    ("b.example", "Beta ", "DE"): ("B", "by_name", "ok", None, "miss"),
    (None, "Beta", "DE"): ("B", "by_name", "ok", None, "miss"),
    ("small.example", "Beta", "DE"): ("S", "by_domain", "ok", None, "skipped"),
    ("c.example", None, "DE"): (None, None, "miss", None, "skipped"),
    (None, None, None): (None, None, "skipped", None, "skipped"),
}


def test_the_example_of_the_guide_calls_each_vendor_only_where_declared(
    firms, service, monkeypatch
):
    (code,) = blocks("docs/chains.md", "python")
    asked = []

    async def answer(request):
        asked.append(request.path)
        found = ANSWERS.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)

    service.answer = answer
    for name in ("DIRECTORY_URL", "REGISTRY_URL", "BUREAU_URL"):
        monkeypatch.setenv(name, service.url)
    firms.declare(code)
    firms.write_input(
        {
            name: [row[place] for row in ROWS]
            for place, name in enumerate(("domain", "name", "country"))
        },
        day=DAY,
    )
    assert main(["run", "firms", "--package", "chained", "--day", DAY]) == 0
    table = DeltaTable("data/published/firms").to_pyarrow_table().sort_by("number")
    columns = ("company_id", "company_vendor", "company_status", "score", "score_status")
    assert [tuple(row[name] for name in columns) for row in table.to_pylist()] == [*ROWS.values()]
    assert sorted(asked) == [
        "/companies/A/score", "/companies/B/score", "/companies/DE/Beta", "/domains/a.example",
        "/domains/b.example", "/domains/c.example", "/domains/small.example",
    ]  # fmt: skip
    for name in table.column_names:
        assert f"`{name}`" in GUIDE or name in ("number", "domain", "name", "country", "date")
