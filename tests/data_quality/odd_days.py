"""Days with columns and keys of every type, their lookups, and runs of them."""

import asyncio
import datetime as dt
import decimal
import itertools
import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web

from jobs.run.day import run_day
from jobs.run.plan.options import RunOptions, plan_ledger
from tidegate import (
    AsyncFunctionLookup,
    Cache,
    Enrichment,
    EventTime,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Retry,
    Service,
    Tolerance,
)

DAY = "2013-01-10"
NOON = dt.datetime(2013, 1, 10, 12, tzinfo=dt.UTC)
TEXTS = [
    "",
    " ",
    "a",
    "a ",
    "A",
    "é",
    "e\u0301",
    "\u0000",
    "☃",
    "𝄞",
    "null",
    "NaN",
    "a,b",
    '"',
    "\\",
    "\n",
    "x" * 5000,
    None,
]
FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-320, 0.1, None]
MOMENTS = [
    *map(
        dt.datetime.fromisoformat,
        ("0001-01-01", "1582-10-09", "1900-01-01", "2013-03-31T02:30", "9999-12-31T23:59"),
    ),
    None,
]
POINT = pa.struct(
    [
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.map_(pa.string(), pa.float32())),
    ]
)


def point(dice):
    return dice.choice(
        [
            None,
            {
                "x": dice.choice(FLOATS),
                "tags": dice.choice([["a"], [], None]),
                "more": [("k", -0.0)],
            },
        ]
    )


# a column's name -> its type, and how a value of it is drawn
KINDS = {
    "tiny": (pa.int8(), lambda dice: dice.choice([-128, 127, 0, None])),
    "small_u": (pa.uint16(), lambda dice: dice.randrange(1 << 16)),
    "big_u": (pa.uint64(), lambda dice: dice.choice([2**64 - 1, 0, None])),
    "single": (pa.float32(), lambda dice: dice.choice(FLOATS)),
    "double": (pa.float64(), lambda dice: dice.choice([*FLOATS, dice.random()])),
    "truth": (pa.bool_(), lambda dice: dice.choice([True, False, None])),
    "born": (
        pa.date32(),
        lambda dice: dice.choice(
            [dt.date(1, 1, 1), dt.date(1582, 10, 9), dt.date(9999, 12, 31), None]
        ),
    ),
    "local": (pa.timestamp("us"), lambda dice: dice.choice(MOMENTS)),
    "in_ms": (pa.timestamp("ms", "UTC"), lambda dice: dice.choice(MOMENTS)),
    "berlin": (pa.timestamp("us", "Europe/Berlin"), lambda dice: dice.choice([NOON, None])),
    "lasted": (
        pa.duration("us"),
        lambda dice: dice.choice([dt.timedelta(seconds=-1), dt.timedelta(0), None]),
    ),
    "text": (pa.string(), lambda dice: dice.choice(TEXTS)),
    "word": (pa.dictionary(pa.int32(), pa.string()), lambda dice: dice.choice(["a", "b", None])),
    "bytes": (pa.binary(), lambda dice: dice.choice([b"", b"\0", b"\0\0", b"abc", None])),
    "fixed": (pa.binary(4), lambda dice: dice.choice([b"abcd", b"\0\0\0\0", None])),
    "price": (
        pa.decimal128(38, 10),
        lambda dice: dice.choice([decimal.Decimal("-0.1"), decimal.Decimal(10**27), None]),
    ),
    "short": (
        pa.decimal128(7, 2),
        lambda dice: dice.choice([decimal.Decimal("1.10"), decimal.Decimal(0), None]),
    ),
    "list": (
        pa.list_(pa.float64()),
        lambda dice: dice.choice([[], [None], [0.0], [-0.0, None], [float("nan")], None]),
    ),
    "lists": (
        pa.list_(pa.list_(pa.string())),
        lambda dice: dice.choice([[], [[]], [None], [["a"], [None]], None]),
    ),
    "counts": (
        pa.map_(pa.string(), pa.uint16()),
        lambda dice: dice.choice([[], [("a", 1), ("b", None)], [("b", 1)], None]),
    ),
    "by_number": (
        pa.map_(pa.int64(), POINT),
        lambda dice: dice.choice([[(1, None)], [(2, point(dice))], [], None]),
    ),
    "point": (POINT, point),
}
KEYS = {  # an expression that makes a key, by the column that it needs
    "id": "id", "text": "text", "price": "price", "short": "cast(short as double)", "born": "born",
    "local": "local", "in_ms": "in_ms", "double": "double", "bytes": "bytes", "list": "list",
    "truth": "truth", "point": "struct(point.x, point.tags)", "word": "nullif(word, 'b')",
    "tiny": "tiny % 7",
}  # fmt: skip
MODES = ("ordered", "unordered", "key_ordered")
RETURNS = (
    "number BIGINT, share DOUBLE, little FLOAT, said STRING, amount DECIMAL(20,4), at TIMESTAMP, "
    "on DATE, raw BINARY, "
    "yes BOOLEAN, several ARRAY<DOUBLE>, place STRUCT<x: DOUBLE, names: ARRAY<STRING>>"
)


def give_input(dice, folder, rows):
    """Files of a day, each with some of the columns; a number may be narrower in one than in
    another.
    """
    names = dice.sample(sorted(KINDS), dice.randrange(3, len(KINDS)))
    ids = itertools.count()
    for file in range(dice.randrange(1, 5)):
        here = [name for name in names if file == 0 or dice.random() < 0.9]
        count = dice.choice([0, 1, rows]) if file else rows
        numbers = list(itertools.islice(ids, count))
        columns = {
            "id": pa.array(numbers, dice.choice([pa.int32(), pa.int64()]) if file else pa.int64())
        }
        late = [NOON + dt.timedelta(seconds=n * 10 - dice.choice([0, 0, 5, 500])) for n in numbers]
        columns["seen"] = pa.array(late, pa.timestamp("us", "UTC"))
        columns |= {name: column_of(dice, name, count) for name in here}
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / f"part {file}.parquet")
    return names


def column_of(dice, name, count):
    kind, draw = KINDS[name]
    values = [draw(dice) for _ in range(count)]
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    if pa.types.is_timestamp(kind) and kind.tz:
        values = [value.replace(tzinfo=dt.UTC) if value is not None else None for value in values]
    return pa.array(values, kind)


def function_of(seed):
    """Made here, so that it travels by value: another answer for each call, now and then none, an
    error, a hang.
    """

    class Oracle:
        def __init__(self):
            self.dice = random.Random(f"{seed} {time.time_ns()}")

        async def async_invoke(self, keys):
            dice, happens = self.dice, self.dice.random()
            await asyncio.sleep(dice.choice([0, 0.001, 0.01]))
            if happens < 0.02:
                raise ConnectionError("reset by peer")
            if happens < 0.03:
                await asyncio.sleep(30)
            if happens < 0.13:
                return []
            return [
                {
                    "number": dice.getrandbits(60),
                    "share": dice.choice([0.0, -0.0, float("nan"), dice.random(), None]),
                    "little": dice.random(),
                    "said": dice.choice(["é", "e\u0301", " ", "", f"{dice.random()}", None]),
                    "amount": decimal.Decimal(dice.randrange(10**9)) / 10000,
                    "at": dt.datetime(2013, 1, 10, tzinfo=dt.UTC)
                    + dt.timedelta(microseconds=dice.getrandbits(40)),
                    "on": dt.date.fromordinal(dice.randrange(1, 3_000_000)),
                    "raw": dice.randbytes(dice.randrange(4)),
                    "yes": dice.choice([True, False, None]),
                    "several": dice.choice([[], [None], [-0.0], [dice.random()], None]),
                    "place": {"x": dice.random(), "names": ["a", None]},
                }
            ]

        def timeout(self, keys):
            return [{"number": -1}] if seed % 3 == 0 else super_timeout()

    def super_timeout():
        raise TimeoutError

    return Oracle


class Moody:
    """What the HTTP service says: another answer for each call, misses, errors that pass, answers
    that do not fit.
    """

    def __init__(self, seed):
        self.dice = random.Random(seed)

    async def __call__(self, request):
        dice, happens = self.dice, self.dice.random()
        await asyncio.sleep(dice.choice([0, 0, 0.002, 0.02]))
        if happens < 0.1:
            return web.Response(status=404)
        if happens < 0.12:
            return web.Response(status=dice.choice([400, 500, 503]))
        if happens < 0.15:
            return web.json_response({"rate": "not a number"})
        return web.json_response(
            {
                "rate": dice.choice([-0.0, dice.random()]),
                "name": f"é{dice.random()}",
                "items": [1, None],
            }
        )


def declare(dice, seed, url, names, *, more=""):
    usable = [name for name in KEYS if name in names or name == "id"]
    parts = dice.sample(usable, dice.randrange(1, min(3, len(usable)) + 1))
    cache = dice.choice([None, Cache(), Cache(max_entries=2)])
    lookups = [
        AsyncFunctionLookup(
            name="oracle", keys={f"part {n}": KEYS[name] for n, name in enumerate(parts)},
            returns=RETURNS, timeout=1.5, max_concurrency=8, function=function_of(seed),
            retry=Retry(retries=1, initial_delay=0.001), cache=cache,
        ),
        HttpLookup(
            name="rated", service=Service(name="rates", url=url, max_concurrency=8),
            request="GET /{k}",
            keys={"k": dice.choice(["id % 11", "id", "if(id % 5 = 0, null, id % 3)"])}, returns=(
                    f"rate DOUBLE, name STRING, items ARRAY<INT>{more}"
                    ), paths={"twice": "$.rate"} if more else {},
            timeout=5.0, retry=Retry(retries=3, initial_delay=0.001),
            on_miss=dice.choice(["null", "dead_letter"]),
        ),
    ][:: dice.choice([1, -1])]  # fmt: skip
    mode = dice.choice(MODES)
    kept = dice.random() < 0.8
    return Enrichment(
        name="odd", input=Input(path="raw", row_id=dice.choice([[], ["id"]])), lookups=lookups,
        output=Output(path="published"), mode=mode, key=["id"] if mode == "key_ordered" else [],
        event_time=dice.choice([None, EventTime("seen", max_out_of_orderness=dt.timedelta(seconds=60))]),
        tolerance=Tolerance(timeout=1.0, error=1.0), pii=dice.choice([[], ["id"]]),
        ledger=Ledger("ledger", flush_seconds=0.05) if kept else None,
    )  # fmt: skip


def run(enrichment, run_id, rules=None):
    record = run_day(enrichment, DAY, run_id, rules=rules, checks="data_quality.day:check")
    slow = (
        "__concurrency_held",
        "__time_limit_held",
        "__retries_held",
    )  # two busy cores: the clock is not on trial here
    found = {
        verdict.check: verdict.sentence
        for verdict in record.verdicts
        if verdict.holds_back and not verdict.check.endswith(slow)
    }
    assert found == {}, found  # the sentences say which rows
    return record


def folders(enrichment):
    return [
        plan_ledger(enrichment, lookup, "x", RunOptions()).open_folder()
        for lookup in enrichment.lookups
    ]
