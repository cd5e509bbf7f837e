"""In one run every distinct key is asked once, counted where it is asked: HTTP, batches, a
database, a function.
"""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.run.day import run_day
from jobs.run.estimating.estimate import estimate
from jobs.run.plan.options import RunOptions
from tidegate import (
    AsyncFunctionLookup,
    Batch,
    Enrichment,
    Env,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Price,
    Retry,
    Service,
    SqlLookup,
    Tolerance,
)  # fmt: skip

pytestmark = pytest.mark.spark
DAY = "2026-11-01"
KEYS = 120
REFUSED = 7  # of ten keys one is an error, and one a miss
MISSED = 8


class Writes:
    """Notes each call in a file."""

    async def async_invoke(self, value):
        with Path(os.environ["FUNCTION_LOG"]).open("a") as log:  # noqa: ASYNC230 - a line
            log.write(f"{value['k']}\n")
        if value["k"] % 10 == REFUSED:
            raise ValueError("refused")
        return [] if value["k"] % 10 == MISSED else [{"seen": 2 * value["k"]}]


def layouts():
    """The keys of two tasks, row by row."""
    dice = random.Random(1)
    distinct = list(range(KEYS))
    uniform = [dice.randrange(KEYS) for _ in range(3 * KEYS)]
    zipf = dice.choices(distinct, [1 / (rank + 1) for rank in distinct], k=3 * KEYS)
    in_order = sorted(uniform)
    return {
        "uniform": (uniform[::2], uniform[1::2]),
        "zipf": (zipf[::2], zipf[1::2]),
        "sorted": (in_order[: len(in_order) // 2], in_order[len(in_order) // 2 :]),
        "once in each task": (distinct, distinct[::-1]),
        "far apart in one task": ([*distinct, *distinct], [KEYS]),
        "one in common": (distinct[: KEYS // 2], distinct[KEYS // 2 - 1 :]),
        "distinct": (distinct[::2], distinct[1::2]),
    }


LAYOUTS = layouts()


@pytest.fixture(scope="module")
def counted(spark, postgres, tmp_path_factory):
    """What counts the calls of functions and databases; Spark's workers hear of it as they
    start.
    """
    database = postgres.new_database()
    postgres.execute("CREATE SEQUENCE asked", database)
    log = tmp_path_factory.mktemp("function") / "log"
    reported = {"FUNCTION_LOG": str(log), "ASKED_URL": postgres.url(database)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in reported.items():
            patch.setenv(name, value)
            patch.setitem(spark.sparkContext.environment, name, value)
        yield log, lambda statement: postgres.execute(statement, database)


@pytest.fixture
def folder(tmp_path, monkeypatch, spark):
    """A project of this test's own, of whose input each file is a task."""
    monkeypatch.chdir(tmp_path)
    packing = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    for setting in packing:
        spark.conf.set(setting, "4k")
    yield tmp_path
    for setting in packing:
        spark.conf.unset(setting)


def give_input(folder, tasks, day=DAY):
    raw = folder / "raw" / f"date={day}"
    raw.mkdir(parents=True)
    for number, keys in enumerate(tasks):
        table = pa.table(
            {"k": pa.array(keys, pa.int64()), "n": range(len(keys)), "pad": ["x" * 40] * len(keys)}
        )
        pq.write_table(table, raw / f"part-{number}.parquet", compression="none")


def scripted(log):
    """Answers single keys and many, and notes each key that it was asked for."""

    def reply(key):
        return {"temp_c": key / 2}

    async def answer(request):
        if request.method == "GET":
            key = int(request.path.rpartition("/")[2])
            log["http"].append(key)
            if key % 10 == REFUSED:
                return web.Response(status=400, text="refused")
            return web.Response(status=404) if key % 10 == MISSED else web.json_response(reply(key))
        keys = await request.json()
        log["batch"] += keys
        return web.json_response([reply(key) for key in keys])

    return answer


def single(service, **fields):
    asked = Service(name="s", url=service.url, max_concurrency=6, prices=[Price("0.01 USD")])
    return HttpLookup(
        name="score", service=asked, request="GET /score/{k}", keys={"k": "k"},
        returns="temp_c DOUBLE", **{"timeout": 30.0, "retry": Retry(retries=0)} | fields,
    )  # fmt: skip


def all_kinds(service):
    many = HttpLookup(
        name="many", service=Service(name="m", url=service.url, max_concurrency=4),
        request="POST /many", batch=Batch(max_items=10, max_wait=0.02, item="{k}"), keys={"k": "k"},
        returns="b DOUBLE", paths={"b": "$.temp_c"}, timeout=30.0,
    )  # fmt: skip
    stored = SqlLookup(
        name="stored",
        url=Env("ASKED_URL"),
        select="SELECT nextval('asked') AS place, CAST(:k AS bigint) AS same",
        keys={"k": "k"},
        returns="place BIGINT, same BIGINT",
        max_concurrency=4,
        timeout=30.0,
    )
    function = AsyncFunctionLookup(
        name="own", function=Writes, keys={"k": "k"}, returns="seen BIGINT", max_concurrency=4,
        timeout=30.0, retry=Retry(retries=0),
    )  # fmt: skip
    return [single(service), many, stored, function]


def declare(lookups, **fields):
    return Enrichment(
        name="scored", input=Input(path="raw"), lookups=lookups, output=Output(path="published"),
        **{"tolerance": Tolerance(timeout=1.0, error=1.0)} | fields,
    )  # fmt: skip


def written(record):
    return pa.concat_tables(pq.ParquetFile(file).read() for file in record.facts.files).to_pylist()


@pytest.fixture
def held(service, folder, counted):
    """One run; its calls of each kind are its distinct keys, and every row has the answer of its
    key.
    """
    function_log, execute = counted

    def run(layout, mode, ledger, checks=None):
        function_log.write_text("")
        execute("ALTER SEQUENCE asked RESTART")
        log = {"http": [], "batch": []}
        service.answer = scripted(log)
        tasks = LAYOUTS[layout]
        give_input(folder, tasks)
        order = {"key": ["k"]} if mode == "key_ordered" else {}
        record = run_day(
            declare(all_kinds(service), mode=mode, ledger=ledger, **order), DAY, "r1", checks=checks
        )
        keys = sorted({key for task in tasks for key in task})
        log["function"] = [int(line) for line in function_log.read_text().split()]
        assert {kind: sorted(asked) for kind, asked in log.items()} == dict.fromkeys(log, keys)
        assert execute("SELECT last_value FROM asked") == [(len(keys),)]
        rows = written(record)
        assert Counter(row["k"] for row in rows) == Counter(key for task in tasks for key in task)
        assert len({(row["k"], row["place"]) for row in rows}) == len(keys)
        for row in rows:
            status = {REFUSED: "error", MISSED: "miss"}.get(row["k"] % 10, "ok")
            answer = (row["k"] / 2, row["k"] * 2) if status == "ok" else (None, None)
            assert (row["score_status"], row["own_status"], (row["temp_c"], row["seen"])) == (
                status,
                status,
                answer,
            )
            assert (row["b"], row["same"]) == (row["k"] / 2, row["k"])
        for lookup in record.figures.lookups:
            assert lookup.calls == lookup.rows_called == len(keys)
        return record

    return run


@pytest.mark.parametrize(
    ("layout", "mode", "ledger"),
    [
        ("once in each task", "key_ordered", None),
        ("far apart in one task", "unordered", Ledger("ledger")),
    ],
)
def test_each_key_is_called_once_in_a_run_by_every_kind_of_lookup(
    held, folder, layout, mode, ledger
):
    held(layout, mode, ledger)
    assert not list(folder.glob("published/runs/*-keys"))


@pytest.mark.proof
@pytest.mark.parametrize("ledger", [Ledger("ledger"), None], ids=["ledger", "no ledger"])
@pytest.mark.parametrize("mode", ["unordered", "ordered", "key_ordered"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_key_is_called_once_however_tasks_share_the_keys(held, layout, mode, ledger):
    record = held(layout, mode, ledger, checks="data_quality.day:check")
    assert record.verdicts
    assert [verdict.check for verdict in record.verdicts if verdict.status == "failed"] == []


@pytest.mark.parametrize("ledger", [None, pytest.param(Ledger("ledger"), marks=pytest.mark.proof)])
def test_a_cap_of_what_plan_says_lets_the_day_end_however_unevenly_the_tasks_share_its_keys(
    spark, service, folder, ledger
):
    service.answer = scripted(log := {"http": []})
    give_input(folder, (range(100), [*range(95, 120), *range(115, 120)]))
    declared = declare([single(service)], ledger=ledger)
    (planned,) = estimate(lambda: spark, declared, [DAY]).lookups
    assert (planned.requests, planned.cost) == (120, "1.20")
    record = run_day(declared, DAY, "r1", rules=RunOptions(max_cost="1.20 USD"))
    assert sorted(log["http"]) == list(range(120))
    assert record.figures.lookups[0].billed.cost == planned.cost


def test_a_call_that_must_not_be_made_twice_is_made_once_for_a_key_of_two_tasks(service, folder):
    service.answer = scripted(log := {"http": []})
    give_input(folder, (range(40), range(15, 55)))
    run_day(declare([single(service, idempotent=False)]), DAY, "r1")
    assert sorted(log["http"]) == list(range(55))


@pytest.mark.proof
def test_zeros_of_both_signs_are_one_key_and_a_rerun_does_not_call(spark, service, folder):
    dice = random.Random(1)
    kind = pa.struct([("x", pa.float64()), ("of", pa.list_(pa.struct([("y", pa.float32())])))])
    values = [
        {"x": dice.choice([0.0, -0.0, 1.5, None]), "of": dice.choice([[{"y": 0.0}], [{"y": -0.0}], [], None])}
        for _ in range(60)
    ]  # fmt: skip
    day = folder / "raw" / f"date={DAY}"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"s": pa.array(values, kind), "n": range(60)}), day / "a.parquet")
    keys = spark.read.parquet(str(day)).select("s.x", "s.of").dropna().distinct().count()
    asked = []

    async def answer(request):
        asked.extend(items := await request.json())
        return web.json_response([{"b": json.dumps(item)} for item in items])

    service.answer = answer
    many = HttpLookup(
        name="many", service=Service(name="m", url=service.url, max_concurrency=4),
        request="POST /many", batch=Batch(max_items=9, max_wait=0.05, item=["{x}", "{of}"]),
        keys={"x": "s.x", "of": "s.of"}, returns="b STRING", timeout=30.0,
    )  # fmt: skip
    for run in ("r1", "r2"):
        record = run_day(
            declare([many], ledger=Ledger("ledger")), DAY, run, checks="data_quality.day:check"
        )
        assert len(asked) == keys
        assert "-0.0" not in str(asked)
        assert [verdict.check for verdict in record.verdicts if verdict.status == "failed"] == []
