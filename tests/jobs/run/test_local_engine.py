"""The local engine writes the table that Spark writes, without Java; what it cannot do it refuses
before any call.
"""

import asyncio
import datetime as dt
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.errors import DeclarationError, TidegateError
from jobs.input.dealing import spark_url
from jobs.input.types import SPARK_TYPES
from jobs.run.day import run_day
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.run.plan.options import RunOptions
from jobs.schema import columns as schema
from jobs.storage.parquet_files import SPARK_VERSION
from tests.support.towns_declared import declare_towns
from tidegate import (
    Enrichment,
    Env,
    EventTime,
    Expectation,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Retry,
    Service,
    Tolerance,
    Tumbling,
    Window,
)

DAY = "2026-11-19"
NOON = dt.datetime(2026, 11, 19, 12, tzinfo=dt.UTC)
NAMES = [
    "a b% ü'.parquet",
    *(f"x{odd}y.parquet" for odd in '#&^|"<>`~+=@;,!$()_-.ß漢'),
    "😀\u0301\u2003\u00a0.parquet",
]
OF_TIME = (
    schema.published_answered_at,
    schema.latency_ms,
    schema.paused_ms,
    schema.attempts,
    schema.source,
)
NOTES = """
import os

with open("processes", "a") as notes:
    print(os.getpid(), file=notes)
"""
OF_USER = """
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Weather:
    async def async_invoke(self, keys):
        return [{"degrees": 1}]


towns = Enrichment(
    name="towns",
    input=Input(path="raw"),
    lookups=[
        AsyncFunctionLookup(
            name="weather", function=Weather, max_concurrency=5, timeout=5.0,
            keys={"town": "town"}, returns="degrees INT", on_null_key="skip",
        )
    ],
    output=Output(path="published"),
)
"""


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    """A day in a file of an odd name; of its 12 towns one is missed and one fails."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    ids = range(200)
    towns = [None if n % 25 == 7 else f" Town{n % 12} " for n in ids]
    times = [NOON + dt.timedelta(seconds=n * 37 % 300) for n in ids]
    pq.write_table(
        pa.table({"n": ids, "town": pa.array(towns, pa.string()), "at": times}), folder / NAMES[0]
    )

    async def answer(request):
        town = request.path.rpartition("/")[2]
        status = {"town3": 404, "town4": 500}.get(town, 200)
        return web.json_response({"degrees": len(town)}, status=status)

    service.answer = answer
    return tmp_path


def declare(service, *, mode="ordered", keys=None, **more):
    keys = keys or {"town": "trim(lower(town))"}
    weather = HttpLookup(
        name="weather", service=Service(name="weather", url=service.url, max_concurrency=5),
        request="GET /" + "/".join(f"{{{key}}}" for key in keys), keys=keys, returns="degrees INT",
        timeout=5.0, on_null_key="skip", retry=Retry(retries=1, initial_delay=0.01),
    )  # fmt: skip
    return Enrichment(
        name="towns", input=Input(path="raw"), lookups=[weather], output=Output(path="published"),
        mode=mode, key=["n"] if mode == "key_ordered" else (), tolerance=Tolerance(error=1.0),
        **more,
    )  # fmt: skip


def event_time():
    return EventTime("at", max_out_of_orderness=dt.timedelta(seconds=5))


def rows(record, *, exact):
    """The written rows in the order of the input. exact: with their order in the output."""
    table = pa.concat_tables(pq.ParquetFile(file).read() for file in record.facts.files)
    dropped = [column("weather") for column in OF_TIME]
    dropped += [] if exact else [schema.OUTPUT_SEQ]
    return table.drop_columns(dropped).sort_by("n")


@pytest.mark.spark
@pytest.mark.parametrize(
    "mode",
    [
        "key_ordered",
        *(pytest.param(mode, marks=pytest.mark.proof) for mode in ("ordered", "unordered")),
    ],
)
def test_the_local_engine_writes_the_values_that_spark_writes(
    project, spark, service, monkeypatch, mode
):
    before = set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    records = []
    for engine in ("local", "spark"):
        monkeypatch.setenv(ENGINE, engine)
        declared = declare(
            service, mode=mode, ledger=Ledger(f"ledger-{engine}"), event_time=event_time()
        )
        records += [
            run_day(declared, DAY, f"{engine}-{run_id}", checks="data_quality.day:check")
            for run_id in ("unknown", "known")
        ]
        jobs = set(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) - before
        assert engine == "spark" or not jobs
    local, local_known, by_spark, by_spark_known = records
    exact = mode == "ordered"
    assert rows(local, exact=exact).equals(rows(by_spark, exact=exact))
    assert rows(local_known, exact=exact).equals(rows(by_spark_known, exact=exact))
    assert local.figures.lookups[0].outcomes == by_spark.figures.lookups[0].outcomes
    assert local.facts.asked_by == by_spark.facts.asked_by
    verdicts = [
        [(verdict.check, verdict.status) for verdict in record.verdicts]
        for record in (local, by_spark)
    ]
    assert verdicts[0] == verdicts[1]


def test_a_run_without_calls_does_not_test_the_connection_to_its_service(
    project, service, monkeypatch
):
    async def answer(request):
        return web.json_response({"degrees": 1})

    service.answer = answer
    monkeypatch.setenv("URL", service.url)
    declared = declare(SimpleNamespace(url=Env("URL")), ledger=Ledger("ledger"))
    run_day(declared, DAY, "first", engine=LOCAL)
    monkeypatch.setenv("URL", "http://127.0.0.1:1")
    record = run_day(declared, DAY, "second", engine=LOCAL, rules=RunOptions(max_calls=0))
    assert record.figures.lookups[0].outcomes["ok"] == 192
    assert record.figures.calls == 0


@pytest.mark.spark
def test_a_row_has_the_source_file_that_spark_gives_it(tmp_path, spark):
    for name in NAMES:
        pq.write_table(pa.table({"name": [name]}), tmp_path / name)
    frame = spark.read.parquet(str(tmp_path)).select("name", "_metadata.file_path")
    judged = {
        row["name"]: row["file_path"].replace("file:///", "file:/") for row in frame.collect()
    }
    assert {name: spark_url(str(tmp_path / name)) for name in NAMES} == judged


@pytest.fixture
def command(project, service):
    """Starts `tidegate run` on a declaration that notes the processes which load it."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": "/nowhere",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    words = f"run towns --day {DAY} --package declared --engine local".split()

    declared = declare_towns(service.url, of_lookup='on_null_key="skip", ')

    def start(declared=declared):
        package = project / "declared"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        (package / "towns.py").write_text(declared + NOTES)
        return subprocess.Popen(
            [sys.executable, "-m", "tidegate", *words], env=environment, cwd=project, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def published(process):
    told, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Spark" not in errors
    assert DeltaTable("published").to_pyarrow_table().num_rows == 200
    return told


@pytest.mark.process
def test_a_day_runs_from_the_command_line_without_java_in_one_process(project, service, command):
    service.answer = _answered
    assert "published   200 rows, 12 calls" in published(command())
    assert len((project / "processes").read_text().split()) == 1
    (log,) = project.glob("data/runs/towns/*/*.log")
    assert "200 of 200 rows" in log.read_text()


async def _answered(request):
    return web.json_response({"degrees": 1})


@pytest.mark.process
@pytest.mark.proof
def test_the_code_of_a_user_runs_in_another_process(project, command):
    assert "12 calls" in published(command(OF_USER))
    assert len(set((project / "processes").read_text().split())) == 2


@pytest.mark.process
def test_ctrl_c_ends_a_run_and_the_same_command_continues(service, command):
    async def answer_some(request):
        if len(service.log) == 6:
            first.send_signal(signal.SIGINT)
        if len(service.log) > 5:
            await asyncio.Event().wait()
        return await _answered(request)

    service.answer = answer_some
    first = command()
    _, errors = first.communicate()
    assert first.returncode == 130
    assert errors.endswith("The same command continues.\n")
    service.answer = _answered
    published(command())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"keys": {"town": "reverse(town)"}}, "keys.town: 'reverse\\(town\\)' needs Spark"),
        ({"keys": {"town": "n / 2"}}, "keys.town: 'n / 2' needs Spark"),
        (
            {"expectations": [Expectation("expect_column_values_to_not_be_null", column="n")]},
            "expectations need Spark",
        ),
        (
            {
                "event_time": event_time(),
                "windows": [
                    Window(
                        "w", of=Tumbling(dt.timedelta(minutes=1)), key=["town"], sql="count(*) AS n"
                    )
                ],
            },
            "windows need Spark",
        ),
    ],
    ids=["function", "division", "expectations", "windows"],
)
def test_a_declaration_that_needs_spark_is_refused_before_any_call(
    project, service, monkeypatch, more, reason
):
    monkeypatch.setenv(ENGINE, "local")
    with pytest.raises(DeclarationError, match=reason):
        run_day(declare(service, **more), DAY, "refused")
    assert service.log == []


def test_an_answer_with_a_space_in_the_name_of_a_field_passes_the_checks(
    project, service, monkeypatch
):
    async def answer(request):
        return web.json_response({"place": {"first line": "Karl-Johans gate"}})

    service.answer = answer
    monkeypatch.setenv(ENGINE, LOCAL)
    declared = declare(service)
    lookup = replace(declared.lookups[0], returns="place STRUCT<`first line`: STRING>")
    declared = replace(declared, lookups=[lookup])
    record = run_day(declared, DAY, "spaced", checks="data_quality.day:check")
    assert [verdict.check for verdict in record.verdicts if verdict.holds_back] == []


@pytest.mark.parametrize("value", ["2026", "-1", '"north"', "TRUE"])
def test_a_key_that_is_a_value_passes_the_checks_beside_a_column_of_that_name(
    project, service, monkeypatch, value
):
    monkeypatch.setenv(ENGINE, LOCAL)
    pq.write_table(pa.table({"n": [1], value: ["other"]}), f"raw/date={DAY}/{NAMES[0]}")
    record = run_day(
        declare(service, keys={"town": value}), DAY, "valued", checks="data_quality.day:check"
    )
    assert [verdict.check for verdict in record.verdicts if verdict.holds_back] == []


def test_times_in_int96_are_kept_and_may_be_keys(project, service, monkeypatch):
    monkeypatch.setenv(ENGINE, "local")
    service.answer = _answered
    times = [dt.datetime(1501, 2, 3, tzinfo=dt.UTC), NOON]
    table = pa.table({"n": range(2), "at": pa.array(times, pa.timestamp("us", "UTC"))})
    path = f"raw/date={DAY}/{NAMES[0]}"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    declared = declare(service, keys={"town": "at"}, ledger=Ledger("ledger"))
    for run_id in ("unknown", "known"):
        record = run_day(declared, DAY, run_id, checks="data_quality.day:check")
        assert [verdict.status for verdict in record.verdicts if verdict.status == "failed"] == []
        assert rows(record, exact=True)["at"].to_pylist() == times
    assert sorted(service.log) == ["/1501-02-03T00%3A00%3A00Z", "/2026-11-19T12%3A00%3A00Z"]


HOME = pa.struct(
    [("Town", pa.string()), ("since", pa.timestamp("us", "UTC")), ("born", pa.date32()),
     ("flat", pa.int64()), ("vip", pa.bool_()), ("Tags", pa.list_(pa.string()))]
)  # fmt: skip
CUSTOMER = pa.struct([("home", HOME)])


def write_customers(**options):
    """A day with keys in structs, some of which are null at each level."""
    homes = [
        {"Town": f"ß{n % 5}", "since": NOON.replace(year=1500 + n % 3), "born": NOON.date(),
         "flat": n % 2, "vip": n % 2 == 0, "Tags": None if n % 3 else ["a", None]}
        for n in range(40)
    ]  # fmt: skip
    rows = [{"home": home} for home in homes] + [None, {"home": None}, {"home": {"Town": None}}]
    table = pa.table({"n": range(len(rows)), "customer": pa.array(rows, CUSTOMER)})
    pq.write_table(table, f"raw/date={DAY}/{NAMES[0]}", **options)


FIELDS = {
    "town": "customer.home.town",
    "since": "Customer.Home.since",
    "born": "customer.home.born",
}
FIELDS |= {"flat": "customer.home.flat", "vip": "coalesce(customer.home.vip, false)"}


@pytest.mark.spark
@pytest.mark.parametrize(
    "engines",
    [("local", "spark"), pytest.param(("spark", "local"), marks=pytest.mark.proof)],
    ids="-".join,
)
def test_each_engine_uses_stored_answers_of_the_other_engine(
    project, spark, service, monkeypatch, engines
):
    service.answer = _answered
    write_customers(use_deprecated_int96_timestamps=True)
    declared, written = declare(service, keys=FIELDS, ledger=Ledger("ledger")), []
    for engine in engines:
        monkeypatch.setenv(ENGINE, engine)
        record = run_day(declared, DAY, engine, checks="data_quality.day:check")
        assert [verdict.check for verdict in record.verdicts if verdict.status == "failed"] == []
        written.append((rows(record, exact=True), record.figures.calls, len(service.log)))
    (one, calls, asked), (other, more, asked_of_both) = written
    assert one.equals(other)
    assert calls == asked == 30
    assert (more, asked_of_both) == (0, 30)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"__CHAR_VARCHAR_TYPE_STRING": "char(9)"}, "'town' .whose values Spark changes"),
        ({"EXISTS_DEFAULT": "'x'"}, "'town' .whose values Spark changes"),
        ({"comment": "of the customer", "ml_attr": {"type": "nominal"}}, None),
    ],
    ids=["char", "default", "notes"],
)
def test_input_that_only_spark_reads_is_refused_before_any_call(
    project, service, monkeypatch, metadata, reason
):
    monkeypatch.setenv(ENGINE, "local")
    service.answer = _answered
    fields = [{"name": "n", "type": "long", "nullable": False, "metadata": {}}]
    fields.append({"name": "town", "type": "string", "nullable": True, "metadata": metadata})
    noted = {SPARK_TYPES: json.dumps({"type": "struct", "fields": fields})}
    table = pa.table({"n": range(2), "town": ["a", None]}).replace_schema_metadata(noted)
    pq.write_table(table, f"raw/date={DAY}/{NAMES[0]}")
    if reason is None:
        run_day(declare(service), DAY, "taken")
        return
    with pytest.raises(DeclarationError, match=f"^towns: input: only Spark reads {reason}"):
        run_day(declare(service), DAY, "refused")
    assert service.log == []


@pytest.mark.parametrize("year", [1900, 1899])
def test_files_of_spark_2_are_taken_unless_a_date_is_before_1900(
    project, service, monkeypatch, year
):
    monkeypatch.setenv(ENGINE, "local")
    service.answer = _answered
    born = pa.array([None, dt.date(year, 12, 31)], pa.date32())
    table = pa.table(
        {"n": range(2), "town": ["a", "b"], "born": born, "days": [[time] for time in born]}
    )
    noted = table.replace_schema_metadata({SPARK_VERSION: b"2.4.8"})
    pq.write_table(noted, f"raw/date={DAY}/{NAMES[0]}")
    declared = declare(service, keys={"town": "town", "born": "coalesce(born, born)"})
    if year < 1900:
        with pytest.raises(
            DeclarationError, match=r"^input: 'born' in .* has dates or times before"
        ):
            run_day(declared, DAY, "refused")
        assert service.log == []
        return
    record = run_day(declared, DAY, "taken", checks="data_quality.day:check")
    passed = {verdict.check for verdict in record.verdicts if verdict.status == "passed"}
    assert {"input_unchanged", "every_row_once"} <= passed
    assert not [verdict.check for verdict in record.verdicts if verdict.status == "failed"]
    assert rows(record, exact=True)["days"].to_pylist() == [[time] for time in born.to_pylist()]


def test_an_unknown_engine_is_named(project, service, monkeypatch):
    monkeypatch.setenv(ENGINE, "flink")
    with pytest.raises(
        DeclarationError, match="TIDEGATE_ENGINE is 'flink'; it must be spark or local"
    ):
        run_day(declare(service), DAY, "refused")


def test_a_damaged_input_file_is_named(project, service, monkeypatch):
    monkeypatch.setenv(ENGINE, "local")
    file = Path(f"raw/date={DAY}/{NAMES[0]}")
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(2000) + data[2004:])  # its footer is sound
    with pytest.raises(TidegateError, match=r"input: .*b% .* cannot be read: "):
        run_day(declare(service), DAY, "torn")


def test_a_lookup_does_not_wait_for_the_keys_of_another_lookup(project, service, monkeypatch):
    monkeypatch.setenv(ENGINE, "local")
    service.answer = _answered
    towns = [f"town{n % 100}" for n in range(200)]
    pq.write_table(pa.table({"n": range(200), "town": towns}), f"raw/date={DAY}/{NAMES[0]}")
    lookups = [
        HttpLookup(
            name=name, service=Service(name=name, url=service.url, max_concurrency=1),
            request=f"GET /{name}/{{town}}", keys={"town": "town"}, returns=f"{name} INT",
            paths={name: "$.degrees"}, timeout=5.0,
        )
        for name in ("slow", "quick")
    ]  # fmt: skip
    run_day(replace(declare(service), lookups=lookups), DAY, "spread")
    asked = [path.split("/")[1] for path in service.log]
    assert [asked[:100].count(name) > 30 for name in ("slow", "quick")] == [True, True]
