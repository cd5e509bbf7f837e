"""Random values by every way that an answer can come in, judged by readers of Python's own.

The ways: over HTTP alone, in pages, and in a batch by its key, its id and its place; a coroutine
that passes an answer on; a function's own values; a row of SQLite and of PostgreSQL, alone and of
many. Each answer is also stored and mapped again, as the ledger, `remap` and the checks do it.
"""

import asyncio
import datetime as dt
import decimal
import json
import os
import random
import sqlite3

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.clients.registry import client_for
from jobs.declare.answers.answer_json import dump, load
from jobs.ledger.answers import StoredAnswer
from jobs.task.rows.ledger_hits import map_stored_answer
from tidegate import AsyncFunctionLookup, Batch, Env, HttpLookup, Pages, Service, SqlLookup, lookup

RETURNS = (
    "price DECIMAL(20,2), pi DECIMAL(38,18), half DECIMAL(6,2), count BIGINT, share DOUBLE, at "
    "TIMESTAMP, day DATE, list ARRAY<DECIMAL(12,3)>"
)
COLUMNS = ("price", "pi", "half", "count", "share", "at", "day", "list")
ROWS = [
    pytest.param(60, id="60 rows"),
    pytest.param(1_250, id="1,250 rows", marks=pytest.mark.proof),
]
ANYWHERE = decimal.Context(prec=200)


class Row:
    """One answer: its values as texts, in JSON and in SQL, and what a reader of these texts has in
    each column.
    """

    def __init__(self, draw, number):
        def digits(least, most):
            return "".join(draw.choices("0123456789", k=draw.randint(least, most)))

        def amount(whole, fraction):
            text = f"{draw.choice(('', '-'))}{int(digits(1, whole))}.{digits(1, fraction)}"
            return f"{text}e{draw.choice(('', '-', '+'))}1" if draw.random() < 0.1 else text

        moment = dt.datetime(1, 1, 3, tzinfo=dt.UTC) + dt.timedelta(
            days=draw.randrange(3_652_050),
            seconds=draw.randrange(86_400),
            microseconds=draw.randrange(10**6),
        )
        behind = dt.timedelta(minutes=15 * draw.randint(-48, 48))
        clock = (moment + behind).replace(tzinfo=None)
        hours, minutes = divmod(abs(behind) // dt.timedelta(minutes=1), 60)
        zone = f"{'-' if behind < dt.timedelta() else '+'}{hours:02}:{minutes:02}"
        self.number = number
        self.price, self.pi, self.half = (
            amount(16, 25),
            amount(17, 30),
            f"{int(digits(1, 2))}.{digits(2, 2)}5",
        )
        self.list = [amount(6, 12) for _ in range(draw.randint(0, 3))]
        self.count = str(draw.choice((1, -1)) * draw.randrange(2 ** draw.randint(1, 63)))
        self.share = repr(draw.uniform(-1, 1) * 10 ** draw.randint(-20, 20))
        basic = f"{clock.year:04}{clock:%m%dT%H%M%S.%f}{zone.replace(':', '')}"
        self.at = draw.choice(
            (basic, f"{clock.isoformat(draw.choice('T '), 'microseconds')}{zone}")
        )
        self.moment = moment
        self.day = moment.date().isoformat()

    @property
    def json(self):
        # JSON has one kind of number
        integral = f"{self.count}.0" if self.number % 3 == 0 else self.count
        numbers = {
            "price": self.price,
            "pi": self.pi,
            "half": self.half,
            "count": integral,
            "share": self.share,
        }
        members = [*numbers.items(), ("list", f"[{', '.join(self.list)}]")]
        members += [
            ("at", json.dumps(self.at)),
            ("day", json.dumps(self.day)),
            ("key", str(self.number)),
        ]
        return "{" + ", ".join(f'"{name}": {text}' for name, text in members) + "}"

    @property
    def expected(self):
        def rounded(text, scale):
            unit = decimal.Decimal(1).scaleb(-scale)
            return decimal.Decimal(text).quantize(unit, decimal.ROUND_HALF_UP, ANYWHERE)

        return (
            rounded(self.price, 2), rounded(self.pi, 18), rounded(self.half, 2), int(self.count),
            float(self.share), self.moment, dt.date.fromisoformat(self.day),
            [rounded(value, 3) for value in self.list],
        )  # fmt: skip


def rows_of(count):
    draw = random.Random(count)
    return [Row(draw, number) for number in range(count)]


def judged(declared, rows):
    """Ask for every row, and compare its columns with the judge's: as they came, and as they are
    stored.
    """
    keys = [(row.number,) for row in rows]

    async def answers():
        caller = client_for(declared, 8)
        await caller.open()
        came = []
        try:
            while len(came) < len(keys):
                came += await asyncio.gather(*map(caller.call, keys[len(came) : len(came) + 100]))
        finally:
            await caller.close()
        return caller, came

    caller, came = asyncio.run(answers())
    for row, answer in zip(rows, came, strict=True):
        assert written(declared, caller.columns(answer)) == row.expected, row.json
        stored = dump(answer)
        assert written(declared, caller.columns(load(stored))) == row.expected, row.json
        reply = map_stored_answer(caller, StoredAnswer("", "ok", stored, 0, ""))
        assert written(declared, reply.answer) == row.expected
        assert dump(load(stored)) == stored


def written(declared, values):
    """The values as a file has them."""
    columns = zip(declared.columns, values, strict=True)
    return tuple(pa.array([value], column.arrow_type)[0].as_py() for column, value in columns)


def http(service, **fields):
    standard = {
        "name": "v",
        "request": "GET /{k}",
        "keys": {"k": "k"},
        "returns": RETURNS,
        "timeout": 60.0,
    }
    return HttpLookup(
        **standard | {"service": Service(name="s", url=service.url, max_concurrency=8)} | fields
    )


def by_path(rows):
    async def answer(request):
        text = rows[int(request.path.rpartition("/")[2])].json
        if request.query.get("page") == "2":
            text = f'{{"values": [{text}], "next": null}}'
        elif "paged" in request.path:
            text = '{"values": [], "next": "2"}'
        return web.Response(text=text, content_type="application/json")

    return answer


@pytest.mark.parametrize("count", ROWS)
@pytest.mark.parametrize(
    "way", ["alone", "pages", "by key", "by id", "by place", "coroutine", "function", "sqlite"]
)
def test_random_values_are_published_as_an_independent_reader_has_them(
    service, tmp_path, way, count
):
    rows = rows_of(count)
    service.answer = by_path(rows)
    judged(declared_by(way, service, rows, tmp_path), rows)


def declared_by(way, service, rows, folder):
    if way == "alone":
        return http(service, echo={"k": "$.key"})
    if way == "pages":
        paths = {name: f"$.values[0].{name}" for name in COLUMNS}
        pages = Pages(next="$.next", items="$.values", parameter="page", max_pages=2)
        return http(service, request="GET /paged/{k}", pages=pages, paths=paths)
    if way == "coroutine":
        own = Service(name="s", url=service.url, max_concurrency=8)

        @lookup(service=own, keys={"k": "k"}, returns=RETURNS, timeout=60.0)
        async def passed_on(row, http):
            return await http.get(f"/{row.k}")

        return passed_on
    if way == "function":
        made = {"name": "v", "function": lambda: OwnValues(rows), "max_concurrency": 8}
        return AsyncFunctionLookup(**made, keys={"k": "k"}, returns=RETURNS, timeout=60.0)
    if way == "sqlite":
        return sqlite_lookup(rows, folder / "values.db")
    return batched(way, service, rows)


def batched(way, service, rows):
    async def answer(request):
        items = await request.json()
        texts = [rows[item["k"]].json for item in items]
        if way == "by id":
            texts = [
                f'{{"id": "{item["id"]}", {text[1:]}'
                for item, text in zip(items, texts, strict=True)
            ]
        if way != "by place":
            texts.reverse()
        return web.Response(text=f"[{', '.join(texts)}]", content_type="application/json")

    service.answer = answer
    item = {"k": "{k}"} | ({"id": "{id}"} if way == "by id" else {})
    match = {"by id": "$.id", "by key": "$.key"}.get(way)
    batch = Batch(max_items=40, max_wait=0.01, item=item, match=match)
    return http(service, request="POST /", batch=batch, miss_when=[])


class OwnValues:
    """A function whose values are Python's own: what its reader has, of any class."""

    def __init__(self, rows):
        self.rows = rows

    async def async_invoke(self, keys):
        answer = json.loads(self.rows[keys["k"]].json, parse_float=decimal.Decimal)
        answer["count"] = int(answer["count"])
        answer["share"] = float(answer["share"])
        if keys["k"] % 2:
            answer["at"], answer["day"] = (
                self.rows[keys["k"]].moment,
                dt.date.fromisoformat(answer["day"]),
            )
        return [answer]


def sqlite_lookup(rows, path):
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE v (k, price TEXT, pi TEXT, half TEXT, count INT, share "
            "REAL, at, day, list)"
        )
        for row in rows:
            numbers = (row.price, row.pi, row.half, int(row.count), float(row.share))
            values = (row.number, *numbers, row.at, row.day, f"[{', '.join(row.list)}]")
            database.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    database.close()
    return sql_lookup(f"sqlite+aiosqlite:///{path}", batch_size=7)


def sql_lookup(url, **fields):
    standard = {
        "name": "v",
        "table": "v",
        "keys": {"k": "k"},
        "returns": RETURNS,
        "timeout": 60.0,
        "max_concurrency": 4,
    }
    return SqlLookup(url=url, **standard | fields)


@pytest.mark.process
@pytest.mark.parametrize("count", ROWS)
@pytest.mark.parametrize("batch_size", [1, 50])
def test_random_values_of_postgresql_are_published_as_they_are(
    postgres, monkeypatch, count, batch_size
):
    rows = rows_of(count)
    name = postgres.new_database()
    lines = [
        f"({row.number}, {row.price}, {row.pi}, {row.half}, {row.count}, {row.share}, '{row.at}', "
        f"'{row.day}', '[{', '.join(row.list)}]')"
        for row in rows
    ]
    types = (
        "k BIGINT, price NUMERIC, pi NUMERIC, half NUMERIC, count BIGINT, share FLOAT8, at "
        "TIMESTAMPTZ, day DATE"
    )
    postgres.execute(
        f"CREATE TABLE v ({types}, list JSON); INSERT INTO v VALUES {', '.join(lines)};", name
    )
    monkeypatch.setenv(variable := f"VALUES_URL_{len(os.environ)}", postgres.url(name))
    judged(sql_lookup(Env(variable), batch_size=batch_size), rows)
