"""A day whose tasks run on other machines, which share the object store and no disk: the same
values as on a folder.

The machines here are one, whose tasks are treated as if they ran on others; tests/hosts has real
ones.
"""

import datetime as dt
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.errors import DeclarationError
from jobs.process.before_spark import BeforeSpark
from jobs.run.day import run_day
from jobs.run.engines.engine import SparkEngine
from jobs.run.plan import shared_places
from jobs.schema import columns as schema
from jobs.storage import objects
from jobs.storage.parquet_files import SPARK_VERSION, open_parquet
from jobs.tables.delta import copied_rows
from jobs.tables.derived.window_tables import publish_windows, table_of
from jobs.tables.old_files import vacuum
from jobs.tables.publishing import publish
from jobs.task.seen_files import code_digest
from tidegate import (
    Enrichment,
    EventTime,
    Expectation,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Service,
    Session,
    Sliding,
    Tolerance,
    Tumbling,
    Window,
)

pytestmark = pytest.mark.spark
DAY = "2026-11-19"
NOON = dt.datetime(2026, 11, 19, 12, tzinfo=dt.UTC)
CHECKS = "data_quality.day:check"
OF_RUN = (
    schema.published_answered_at,
    schema.latency_ms,
    schema.paused_ms,
    schema.attempts,
    schema.source,
)
# what follows from the rows that meet in a task
OF_DIVISION = (schema.PARTITION, schema.INPUT_SEQ, schema.SEGMENT, schema.LATE)


@pytest.fixture
def place(s3, spark, service, tmp_path, monkeypatch):
    """A store with a day in three files, whose tasks run elsewhere. The same files are in a
    folder.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in s3.environment().items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)  # of the tasks
    draw = random.Random(7)
    first = 0
    for number, rows in enumerate((120, 1, 80)):
        ids = range(first, first + rows)
        towns = [None if n % 25 == 7 else f"town{draw.randrange(30)}" for n in ids]
        times = [NOON + dt.timedelta(seconds=n * 37 % 300) for n in ids]
        table = pa.table({"n": ids, "town": pa.array(towns, pa.string()), "at": times})
        folder = tmp_path / "raw" / f"date={DAY}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part {number}.parquet"
        pq.write_table(table, path, row_group_size=50)
        objects.upload(path, f"{s3.bucket}/raw/date={DAY}/{path.name}")
        first += rows

    async def answer(request):
        town = request.path.rpartition("/")[2]
        status = {"town3": 404, "town4": 500}.get(town, 200)
        return web.json_response({"degrees": len(town)}, status=status)

    service.answer = answer
    return s3.bucket


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(SparkEngine, "is_elsewhere", True)
    monkeypatch.setattr("jobs.run.day.is_elsewhere", lambda _option: True)


def declare(service, root, *, key="town", mode="ordered", raw=None, **more):
    towns = HttpLookup(
        name="weather", service=Service(name="weather", url=service.url, max_concurrency=5),
        request="GET /{town}", keys={"town": key}, returns="degrees INT", timeout=5.0,
        on_null_key="skip", on_miss="dead_letter",
    )  # fmt: skip
    output, ledger = more.pop("output", f"{root}/published"), more.pop("ledger", f"{root}/ledger")
    return Enrichment(
        name="towns", input=raw or Input(path=f"{root}/raw", row_id=["n"]), lookups=[towns],
        output=Output(path=output), mode=mode, key=["n"] if mode == "key_ordered" else (),
        tolerance=Tolerance(error=1.0), ledger=Ledger(ledger), **more,
    )  # fmt: skip


def rows(record, without=()):
    """The written rows in the order of the input, without what differs between any two runs."""
    tables = []
    for file in record.facts.files:
        with open_parquet(file) as opened:
            tables.append(opened.read())
    table = pa.concat_tables(tables)
    columns = [column("weather") for column in OF_RUN] + [schema.OUTPUT_SEQ, schema.SOURCE_FILE]
    columns += without
    return table.drop_columns(columns).sort_by("n")


def beside_rows(table, name, without=()):
    """The rows of a table beside, in the order of the input, without what differs between any two
    runs.
    """
    columns = [column("weather") for column in OF_RUN] + [
        schema.OUTPUT_SEQ,
        schema.SOURCE_FILE,
        "_at",
        "_attempts",
        *without,
    ]
    found = DeltaTable(f"{table}__{name}").to_pyarrow_table()
    return (
        found.drop_columns([column for column in columns if column in found.column_names])
        .sort_by("n")
        .to_pylist()
    )


def statuses(record):
    return {verdict.check: verdict.status for verdict in record.verdicts}


def files_of_runs(tmp_path):
    return [
        path
        for path in tmp_path.rglob("*")
        if path.suffix in (".parquet", ".arrow") and not {"raw", "all"} & {*path.parts}
    ]


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        ("ordered", "town"),
        pytest.param("unordered", "town", marks=pytest.mark.proof),
        pytest.param("key_ordered", "reverse(reverse(town))", marks=pytest.mark.proof),
    ],
)
def test_a_day_on_a_store_equals_the_day_in_a_folder(
    place, spark, service, *, tmp_path, monkeypatch, mode, key
):
    # Spark packs the rows of an expression that only Spark evaluates by the sizes of local files
    without = () if key == "town" else OF_DIVISION
    event_time = EventTime("at", max_out_of_orderness=dt.timedelta(seconds=5))
    in_folder = declare(service, ".", mode=mode, key=key, event_time=event_time)
    judged = [run_day(in_folder, DAY, run_id, checks=CHECKS) for run_id in ("unknown", "known")]
    values = [rows(record, without) for record in judged]
    publish(judged[0])
    beside = [beside_rows("published", name, without) for name in ("audit", "dead_letters")]
    for path in files_of_runs(tmp_path):
        path.unlink()
    asked = len(service.log)
    monkeypatch.setattr(SparkEngine, "is_elsewhere", True)
    monkeypatch.setattr("jobs.run.day.is_elsewhere", lambda _option: True)
    on_store = declare(service, place, mode=mode, key=key, event_time=event_time)
    found = [run_day(on_store, DAY, run_id, checks=CHECKS) for run_id in ("unknown", "known")]
    assert len(service.log) == 2 * asked
    for record, expected, value in zip(found, judged, values, strict=True):
        assert all(file.startswith(place) for file in record.facts.files)
        assert rows(record, without).equals(value)
        assert statuses(record) == statuses(expected)
        assert record.figures.lookups[0].outcomes == expected.figures.lookups[0].outcomes
        assert (record.figures.rows_out, record.facts.asked_by) == (
            expected.figures.rows_out,
            expected.facts.asked_by,
        )
    assert files_of_runs(tmp_path) == []
    published = publish(found[0])
    table = DeltaTable(f"{place}/published").to_pyarrow_table()
    assert (table.num_rows, published.state) == (201, "published")
    assert beside == [
        beside_rows(f"{place}/published", name, without) for name in ("audit", "dead_letters")
    ]
    assert len(beside[1]) == published.dead_letters > 0
    assert not [
        listed.name
        for listed in objects.listed(f"{place}/published/runs")
        if "unknown/beside" in listed.name
    ]
    kept = {listed.name.partition("/")[0] for listed in objects.listed(f"{place}/published/runs")}
    assert kept == {"unknown", "known"}
    vacuum(f"{place}/published", older_than=dt.timedelta(0))
    assert {
        listed.name.partition("/")[0] for listed in objects.listed(f"{place}/published/runs")
    } == {"unknown"}
    assert DeltaTable(f"{place}/published").to_pyarrow_table().num_rows == 201


@pytest.mark.proof
@pytest.mark.usefixtures("elsewhere")
def test_text_input_is_converted_to_files_on_the_store(place, spark, service, tmp_path):
    """And a day is not converted twice; `vacuum` removes what it was converted to."""
    text = "".join(f"{n},town{n % 7}\n" for n in range(50))
    objects.write(f"{place}/text/date={DAY}/a.csv", f"n,town\n{text}".encode())
    raw = Input(path=f"{place}/text", row_id=["n"], format="csv", schema="n BIGINT, town STRING")
    declared = declare(service, place, raw=raw)
    record = run_day(declared, DAY, "r1", checks=CHECKS)
    assert record.figures.rows_out == 50
    assert set(statuses(record).values()) <= {"passed", "not_run"}
    (converted,) = objects.listed(f"{place}/published/_inputs")
    run_day(declared, DAY, "r2", checks=CHECKS)
    assert objects.listed(f"{place}/published/_inputs") == [converted]
    assert files_of_runs(tmp_path) == []
    publish(record)
    vacuum(f"{place}/published", older_than=dt.timedelta(0))
    assert objects.listed(f"{place}/published/_inputs") == []


@pytest.mark.proof
@pytest.mark.usefixtures("elsewhere")
def test_a_check_in_a_task_names_a_changed_row(place, spark, service, monkeypatch):
    """The files are changed after they are written: the check reads them in a task, and says which
    row.
    """

    def change_once_written(event):
        if event["kind"] != "written":
            return
        file = event["record"]["facts"]["files"][0]
        with open_parquet(file) as opened:
            table = opened.read()
        towns = ["other", *table["town"].to_pylist()[1:]]
        path = f"{place}/changed.parquet".rpartition("/")[2]
        pq.write_table(
            table.set_column(
                table.column_names.index("town"), "town", pa.array(towns, pa.string())
            ),
            path,
        )
        objects.upload(Path(path), file)

    record = run_day(declare(service, place), DAY, "r1", checks=CHECKS, report=change_once_written)
    red = {verdict.check: verdict for verdict in record.verdicts if verdict.status == "failed"}
    assert set(red) >= {"input_unchanged"}
    assert red["input_unchanged"].evidence[0]["differs"] == "town"
    assert red["input_unchanged"].unexpected_count == 1


@pytest.mark.proof
@pytest.mark.usefixtures("elsewhere")
def test_the_users_expectations_are_evaluated_over_files_on_the_store(place, spark, service):
    expected = [
        Expectation("expect_column_values_to_be_between", column="n", min_value=0, max_value=150)
    ]
    record = run_day(declare(service, place, expectations=expected), DAY, "r1", checks=CHECKS)
    red = [verdict for verdict in record.verdicts if verdict.status == "failed"]
    assert [verdict.unexpected_count for verdict in red] == [50]


def draw_windows(seed):
    """Windows of every kind, for events that are up to 300 s out of order."""
    draw = random.Random(seed)
    second = dt.timedelta(seconds=1)
    kinds = [
        Tumbling(draw.randint(5, 90) * second),
        Sliding(60 * second, draw.randint(7, 60) * second),
    ]
    kinds += [Session(draw.randint(1, 20) * second)] * 2
    return {
        "event_time": EventTime("at", max_out_of_orderness=draw.choice([0, 5, 120]) * second),
        "windows": [
            Window(
                f"w{number}",
                of=of,
                key=draw.choice([[], ["town"]]),
                allowed_lateness=draw.choice([0, 30]) * second,
                panes=("last", "all")[number % 2],
                sql="count(*) AS rows_in, sum(n) AS total, max(degrees) AS warmest",
            )
            for number, of in enumerate(kinds)
        ],
    }


def rows_of(files):
    """The rows of files in an order of their values, without the file that they are from."""
    found = []
    for file in files:
        with open_parquet(file) as opened:
            found += (
                opened.read().drop_columns([schema.SOURCE_FILE] * ("dropped" in file)).to_pylist()
            )
    return sorted(
        ({name: value for name, value in row.items() if "answered" not in name} for row in found),
        key=str,
    )


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(12))
def test_windows_on_a_store_equal_windows_in_a_folder(
    place, spark, service, *, monkeypatch, tmp_path, seed
):
    in_folder = run_day(declare(service, ".", **draw_windows(seed)), DAY, "r1", checks=CHECKS)
    monkeypatch.setattr(SparkEngine, "is_elsewhere", True)
    monkeypatch.setattr("jobs.run.day.is_elsewhere", lambda _option: True)
    there = files_of_runs(tmp_path)
    declared = declare(service, place, **draw_windows(seed))
    on_store = run_day(declared, DAY, "r1", checks=CHECKS)
    assert statuses(on_store) == statuses(in_folder)
    assert {statuses(on_store)[f"w{number}__windows_hold"] for number in range(4)} == {"passed"}
    for expected, found in zip(in_folder.facts.windows, on_store.facts.windows, strict=True):
        assert all(file.startswith(place) for file in (*found.files, *found.dropped_files))
        assert found == replace(expected, files=found.files, dropped_files=found.dropped_files)
        assert rows_of(found.files) == rows_of(expected.files)
        assert rows_of(found.dropped_files) == rows_of(expected.dropped_files)
    assert files_of_runs(tmp_path) == there
    published = publish(on_store)
    for window, made in zip(declared.windows, published.facts.windows, strict=True):
        assert publish_windows(declared, window, published) == made.windows
        assert DeltaTable(table_of(declared, window)).to_pyarrow_table().num_rows == made.windows
    assert not [
        listed.name
        for listed in objects.listed(f"{place}/published/runs")
        if "_arrival" in listed.name
    ]


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(12))
def test_changed_rows_on_a_store_equal_changed_rows_in_a_folder(
    place, spark, service, *, monkeypatch, tmp_path, seed
):
    """Three runs over rows of which some change, come and go. The published table has the values of
    the input.
    """
    monkeypatch.setattr(copied_rows, "LEAST_ROWS", 40)
    given, found = list(draw_changes(seed)), {}
    for root in (".", place):
        if root == place:
            monkeypatch.setattr(SparkEngine, "is_elsewhere", True)
            monkeypatch.setattr("jobs.run.day.is_elsewhere", lambda _option: True)
            there, asked = files_of_runs(tmp_path), len(service.log)
        raw = Input(
            path=f"{root}/all", partition="part", every=["all"], row_id=["n"], rows="changed"
        )
        declared = declare(service, root, raw=raw)
        for number, files in enumerate(given):
            give(tmp_path, place, files)
            if root == place:  # the program that starts Spark
                assert (
                    BeforeSpark(declared, ignore_ttl=False, elsewhere=True).unchanged_record("all")
                    is None
                )
            record = run_day(declared, "all", f"r{number}", checks=CHECKS)
            assert [verdict for verdict in record.verdicts if verdict.status == "failed"] == []
            published = publish(record)
            rows = DeltaTable(f"{root}/published".replace("./", "")).to_pyarrow_table().sort_by("n")
            values = rows.select(
                ["n", "town", "degrees", schema.published_status("weather")]
            ).to_pylist()
            assert [(row["n"], row["town"]) for row in values] == sorted(
                row for file in files for row in file
            )
            found.setdefault(number, []).append(
                (record.facts.changes, len(published.facts.kept_files), values)
            )
    assert all(one == other for one, other in found.values())
    assert len(service.log) == 2 * asked
    assert any(changes.kept for (changes, _, _), _ in found.values())
    assert files_of_runs(tmp_path) == there


def draw_changes(seed):
    """The files of three inputs, each with rows of a number and a town; of the later ones many are
    as before.
    """
    draw = random.Random(seed)
    rows = {number: f"town{draw.randrange(30)}" for number in range(150)}
    for _ in range(3):
        numbers, cut = list(rows), draw.randrange(1, 100)
        yield [
            [(number, rows[number]) for number in part] for part in (numbers[:cut], numbers[cut:])
        ]
        for number in draw.sample(numbers, draw.randint(0, 30)):
            rows[number] = f"town{draw.randrange(40)}"
        for number in draw.sample(numbers, draw.randint(0, 20)):
            del rows[number]
        rows |= {200 + draw.randrange(100): "town7" for _ in range(draw.randint(0, 9))}


def give(tmp_path, place, files):
    """Write these files of the input, in the folder and on the store."""
    folder = tmp_path / "all" / "part=all"
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(files):
        numbers, towns = zip(*rows, strict=True)
        path = folder / f"{number}.parquet"
        pq.write_table(
            pa.table({"n": pa.array(numbers), "town": pa.array(towns, pa.string())}), path
        )
        objects.upload(path, f"{place}/all/part=all/{path.name}")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"output": "published"},
            "output: w1, .* where tasks write the rows of the table. Publish to an object store",
        ),
        ({"ledger": "{team}/ledger"}, "ledger: w1, .* Keep the ledger on an object store"),
        (
            {"raw": Input(path="raw", row_id=["n"])},
            "input: w1, .* Put the input on an object store",
        ),
    ],
    ids=["table", "ledger", "input"],
)
def test_a_folder_that_tasks_cannot_read_is_refused_before_any_call(
    place, spark, service, *, tmp_path, monkeypatch, more, sentence
):
    monkeypatch.setattr(
        shared_places, "look_around", lambda files: ("w1", code_digest(), list(files))
    )
    with pytest.raises(DeclarationError, match=f"^towns: {sentence}"):
        run_day(declare(service, place, **more), DAY, "r1", checks=CHECKS)
    assert service.log == []
    assert not list(tmp_path.rglob(".seen-*"))


@pytest.mark.usefixtures("elsewhere")
def test_tasks_of_another_version_are_refused_before_any_call(place, spark, service, monkeypatch):
    monkeypatch.setattr(shared_places, "code_digest", lambda: "another")
    with pytest.raises(
        DeclarationError,
        match=(
            r"^towns: \S+, on which tasks run, has another version of Tidegate "
            r"than"
        ),
    ):
        run_day(declare(service, place), DAY, "r1", checks=CHECKS)
    assert service.log == []


@pytest.mark.proof
@pytest.mark.usefixtures("elsewhere")
def test_a_folder_that_tasks_can_read_is_used(place, spark, service):
    record = run_day(declare(service, ".", **draw_windows(0)), DAY, "r1", checks=CHECKS)
    assert set(statuses(record).values()) <= {"passed", "not_run"}
    assert record.facts.windows


@pytest.mark.proof
@pytest.mark.usefixtures("elsewhere")
def test_nested_columns_on_a_store_are_kept(place, spark, service, tmp_path):
    tags, customers = [[{"a": 1}, None], None], [{"town": "town7"}, None]
    table = pa.table({"n": [1, 2], "tags": tags, "customer": customers})
    pq.write_table(table, tmp_path / "nested.parquet")
    objects.upload(tmp_path / "nested.parquet", f"{place}/nested/date={DAY}/a.parquet")
    raw = Input(path=f"{place}/nested", row_id=["n"])
    declared = declare(service, place, raw=raw, key="customer.town")
    record = run_day(declared, DAY, "r1", checks=CHECKS)
    assert set(statuses(record).values()) <= {"passed", "not_run"}
    written = rows(record)
    assert written.select(["tags", "customer", "degrees"]).to_pylist() == [
        {"tags": tags[0], "customer": customers[0], "degrees": 5},
        {"tags": None, "customer": None, "degrees": None},
    ]


@pytest.mark.usefixtures("elsewhere")
def test_dates_of_spark_2_on_a_store_are_refused_before_any_call(place, spark, service, tmp_path):
    table = pa.table({"n": [1], "town": ["a"], "on": [NOON.date()]})
    noted = table.replace_schema_metadata({SPARK_VERSION: "2.4.8"})
    pq.write_table(noted, tmp_path / "old.parquet")
    objects.upload(tmp_path / "old.parquet", f"{place}/old/date={DAY}/a.parquet")
    with pytest.raises(DeclarationError, match="only Spark reads what is of an old calendar"):
        run_day(declare(service, place, raw=Input(path=f"{place}/old", row_id=["n"])), DAY, "r1")
    assert service.log == []
