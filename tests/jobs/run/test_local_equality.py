"""Both engines publish the same tables from random days: columns of all types, all modes, text
inputs, dead letters.
"""

import datetime as dt
import json
import math
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pv
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.run.day import run_day
from jobs.run.engines.engine import ENGINE
from jobs.schema import columns as schema
from jobs.tables import audit, dead_letters
from jobs.tables.publishing import publish
from tests.support.nested_tables import draw_columns, draw_kinds, write_by_arrow
from tidegate import (
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

DAY = "2026-11-19"
NOON = dt.datetime(2026, 11, 19, 12)  # noqa: DTZ001
TYPES = {
    "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(), "u8": pa.uint8(),
    "u32": pa.uint32(), "f32": pa.float32(), "f64": pa.float64(), "flag": pa.bool_(),
    "text": pa.string(), "octets": pa.binary(), "day": pa.date32(),
    "u64": pa.uint64(), "json": pa.json_(), "view": pa.string_view(), "octet_view": pa.binary_view(),
    "utc": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "ms": pa.timestamp("ms", "UTC"),
    "money": pa.decimal128(12, 3), "wide": pa.decimal128(38, 10),
    "word": pa.dictionary(pa.int32(), pa.string()),
}  # fmt: skip
TEXT_DDL = (
    "n BIGINT, town STRING, at TIMESTAMP, i64 BIGINT, f64 DOUBLE, flag BOOLEAN, day DATE, "
    "money DECIMAL(12, 3)"
)
KEYS_OF_FIELDS = ("customer.home.town", "coalesce(trim(Customer.Home.Town), 'none')")
KEYS = ("trim(lower(town))", "coalesce(nullif(trim(town), ''), 'none')", "concat(town, '-', flag)")
OF_TIME = (
    schema.published_answered_at,
    schema.latency_ms,
    schema.paused_ms,
    schema.attempts,
    schema.source,
)

# of a row in its task
PLACE = {schema.PARTITION, schema.INPUT_SEQ, schema.OUTPUT_SEQ, schema.SEGMENT, schema.LATE}


def value(draw, kind):  # noqa: PLR0911  # a type each
    if draw.random() < 0.15:
        return None
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (
            (0, 2**bits - 1)
            if pa.types.is_unsigned_integer(kind)
            else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return draw.choice([low, high, 0, draw.randint(low, high)])
    if pa.types.is_floating(kind):
        return draw.choice([0.0, -0.0, float("nan"), float("inf"), 1 / 3, draw.random()])
    if pa.types.is_boolean(kind):
        return draw.random() < 0.5
    if pa.types.is_decimal(kind):
        return Decimal(draw.randint(-(10**11), 10**11)).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return dt.date(1900, 1, 1) + dt.timedelta(days=draw.randrange(100_000))
    if pa.types.is_timestamp(kind):
        return dt.datetime(1900, 1, 1) + dt.timedelta(milliseconds=draw.randrange(10**13))  # noqa: DTZ001
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return draw.randbytes(draw.randrange(6))
    return "".join(draw.choice("ab ß漢😀\u0301\x00\\'\"") for _ in range(draw.randrange(8)))


def write_day(draw, folder, form):
    """A day of one or two files. Returns the declared input."""
    folder.mkdir(parents=True)
    number = 0
    nested = draw_kinds(draw)
    for file in range(draw.choice([1, 2])):
        rows = draw.choice([0, 1, 60, 200]) if file else draw.choice([60, 200])
        numbers = list(range(number, number + rows))
        number += rows
        towns = [draw.choice([None, "", " ", *(f" Town{n} " for n in range(12))]) for _ in numbers]
        times = [NOON + dt.timedelta(seconds=draw.randrange(3_600)) for _ in numbers]
        columns = {"n": pa.array(numbers, pa.int64()), "town": pa.array(towns, pa.string())}
        columns["at"] = pa.array(times, pa.timestamp("us", "UTC"))
        wanted = (
            TYPES
            if form == "parquet"
            else {name: TYPES[name] for name in ("i64", "f64", "flag", "day", "money")}
        )
        for name, kind in wanted.items():
            columns[name] = pa.array([value(draw, kind) for _ in numbers], kind)
        table = pa.table(columns)
        if form == "parquet":
            for name, values in (draw_columns(draw, nested, rows) | customers(towns)).items():
                table = table.append_column(name, values)
            write_by_arrow(draw, table, folder / f"part-{file}.parquet")
        elif form == "csv":
            pv.write_csv(table, folder / f"part-{file}.csv")
        else:
            lines = [
                json.dumps({k: spelled(v) for k, v in row.items()}) for row in table.to_pylist()
            ]
            (folder / f"part-{file}.json").write_text("\n".join(lines))
    if form == "parquet":
        return Input(path="raw", row_id=["n"])
    return Input(path="raw", row_id=["n"], format=form, schema=TEXT_DDL)


def customers(towns):
    kind = pa.struct([("Home", pa.struct([("town", pa.string()), ("since", pa.date32())]))])
    homes = [None if town is None else {"Home": {"town": town, "since": NOON}} for town in towns]
    return {"customer": pa.array(homes, kind)}


def spelled(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, dt.date | Decimal) else value


def declare(draw, service, declared, mode, engine):
    weather = HttpLookup(
        name="weather", service=Service(name="weather", url=service.url, max_concurrency=5),
        request="GET /{town}", keys={"town": draw.choice(KEYS if declared.format != "parquet" else KEYS + KEYS_OF_FIELDS)},
        returns="degrees INT, share DECIMAL(9, 4), tags "
                                                  "ARRAY<STRING>, "
        "place STRUCT<lat: DOUBLE, names: ARRAY<STRING>>, since TIMESTAMP", timeout=5.0,
        retry=Retry(retries=1, initial_delay=0.01), on_miss=draw.choice(["null", "dead_letter"]),
    )  # fmt: skip
    return Enrichment(
        name="towns", input=declared, lookups=[weather], output=Output(path=f"published-{engine}"),
        mode=mode, key=["n"] if mode == "key_ordered" else (), tolerance=Tolerance(error=1.0),
        ledger=Ledger(f"ledger-{engine}"),
        event_time=EventTime("at", max_out_of_orderness=dt.timedelta(minutes=5)) if draw.random() < 0.5 else None,
    )  # fmt: skip


def rows_of(table, *, exact):
    """All rows of a table as deltalake's reader has them, but for times, runs and, unless `exact`,
    their place.
    """
    found = DeltaTable(table).to_pyarrow_table()
    dropped = {column("weather") for column in OF_TIME} | {schema.RUN_ID, "_at", "_attempts"}
    dropped |= set() if exact else PLACE
    return found.drop_columns([name for name in found.column_names if name in dropped]).sort_by("n")


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(6))
def test_both_engines_publish_the_same_tables(tmp_path, monkeypatch, service, spark, seed):
    monkeypatch.chdir(tmp_path)
    draw = random.Random(seed)
    mode, form = (
        ("ordered", "unordered", "key_ordered")[seed % 3],
        ("parquet", "parquet", "csv", "json")[seed % 4],
    )

    async def answer(request):
        town = request.path.rpartition("/")[2]
        status = 404 if town.endswith("3") else 500 if town.endswith("4") else 200
        place = {"lat": len(town) / 3, "names": [town, "x"]}
        body = {
            "degrees": len(town),
            "share": "0.1250",
            "tags": [town, None],
            "place": place,
            "since": "2020-01-01",
        }
        return web.json_response(body, status=status)

    service.answer = answer
    declared = write_day(draw, tmp_path / "raw" / f"date={DAY}", form)
    state = draw.getstate()
    for run in ("unknown", "known"):
        for engine in ("local", "spark"):
            draw.setstate(state)
            monkeypatch.setenv(ENGINE, engine)
            enrichment = declare(draw, service, declared, mode, engine)
            record = run_day(enrichment, DAY, f"{engine}-{run}", checks="data_quality.day:check")
            assert not [verdict for verdict in record.verdicts if verdict.holds_back]
            publish(record)
        exact = mode == "ordered" and len(record.facts.shares[0]) == 1
        for of in (str, audit.table_of, dead_letters.table_of):
            places = [of(f"published-{engine}") for engine in ("local", "spark")]
            if not any(map(DeltaTable.is_deltatable, places)):
                continue
            local, by_spark = (rows_of(place, exact=exact) for place in places)
            assert local.schema == by_spark.schema
            declared_types = [DeltaTable(place).schema().to_json() for place in places]
            assert declared_types[0] == declared_types[1]
            for name in local.column_names:
                texts = str(by_spark[name].to_pylist()).replace(
                    "published-spark", "published-local"
                )
                assert str(local[name].to_pylist()) == texts, (of, name)
