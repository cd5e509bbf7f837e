"""A declaration prints as a short table, without any secret."""

import pytest

from tidegate import (
    ApiKey,
    AsyncFunctionLookup,
    Budget,
    Enrichment,
    Env,
    HttpLookup,
    Input,
    Output,
    Price,
    Rate,
    Service,
    SqlLookup,
)

SECRET = "hunter2-secret"


class Same:
    async def async_invoke(self, keys):
        return [keys]


@pytest.fixture
def declared(monkeypatch):
    monkeypatch.setenv("SCORES_URL", f"https://{SECRET}.example.org")
    monkeypatch.setenv("SCORES_KEY", SECRET)
    scores = HttpLookup(
        name="score",
        service=Service(
            name="scores", url=Env("SCORES_URL"), max_concurrency=8,
            auth=ApiKey(Env("SCORES_KEY"), header="X-Key"),
            prices=[Price("0.0040 USD"), Price("4.00 USD", per="1000 items", since="2026-12-01")],
            rate=[Rate(600, per="minute")], budget=[Budget("100.00 USD", per="day")],
        ),
        request="GET /<{customer}>", keys={"customer": "trim(customer_id)"},
        returns="score INT, grade STRING", timeout=5.0,
    )  # fmt: skip
    plane = SqlLookup(
        name="plane", url="postgresql+asyncpg://reader@db:5432/planes", table="planes",
        keys={"tailnum": "tailnum"},
        returns="seats INT", timeout=5.0, max_concurrency=4,
    )  # fmt: skip
    own = AsyncFunctionLookup(
        name="own",
        function=Same,
        keys={"k": "a < b"},
        returns="k BOOLEAN",
        timeout=1.0,
        max_concurrency=2,
    )
    return Enrichment(
        name="orders",
        input=Input(path="raw"),
        lookups=[scores, plane, own],
        output=Output(path="out"),
    )


def test_a_declaration_prints_as_a_short_table(declared):
    lines = repr(declared).splitlines()
    assert lines[0] == "Enrichment orders: raw to out, unordered"
    assert lines[1].split() == ["lookup", "address", "keys", "answers", "limits", "price"]
    assert "$SCORES_URL" in lines[2]
    assert "customer: trim(customer_id)" in lines[2]
    assert "8 in flight, 600 requests per minute, 100.00 USD per day" in lines[2]
    assert "0.0040 USD per item, 4.00 USD per 1,000 items from 2026-12-" in lines[2]
    assert "db:5432" in lines[3]
    assert len(lines) == 5


def test_a_notebook_shows_a_declaration_as_html(declared):
    shown = declared._repr_html_()
    assert shown.count("<tr>") == 4
    assert "k: a &lt; b" in shown


def test_a_shown_declaration_has_no_secret(declared):
    assert SECRET not in repr(declared) + declared._repr_html_()


def test_a_declaration_prints_with_an_unset_variable(declared, monkeypatch):
    monkeypatch.delenv("SCORES_URL")
    assert "$SCORES_URL" in repr(declared)
