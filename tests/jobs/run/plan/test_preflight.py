"""What is known to be wrong before Spark starts is said in one sentence, and nothing is called."""

import contextlib
import dataclasses
import re
import socket
import sqlite3
import sys
import threading
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from enrichments.flights import flights, plane, weather
from jobs.declare.values.key_expressions import columns_in
from jobs.run.plan.column_checks import check_columns
from jobs.run.plan.preflight import preflight
from tidegate import (
    Bearer,
    DeclarationError,
    Env,
    EventTime,
    HttpLookup,
    Input,
    Ledger,
    Output,
    RunStopped,
    Service,
)

pytestmark = pytest.mark.process

DAY = "2013-01-10"


class Listener:
    """A service that counts the connections it takes and what was said on them."""

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections, self.heard = 0, b""
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        return self

    def _take(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(5)
                self.heard += connection.recv(1000)

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def listener(monkeypatch):
    with Listener() as found:
        monkeypatch.setenv("WEATHER_URL", found.url)
        yield found


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def sentence(enrichment=flights, day=DAY, raises=DeclarationError):
    with pytest.raises(raises) as refused:
        preflight(enrichment, day)
    message = str(refused.value)
    assert "\n" not in message
    return message


def of(*lookups, **fields):
    return dataclasses.replace(flights, lookups=list(lookups) or flights.lookups, **fields)


def test_a_right_declaration_passes_without_a_call(project, listener, wait_for):
    found = preflight(flights, DAY)
    assert [str(path) for path in found.files] == [
        f"data/raw/flights/date={DAY}/part-00000.parquet"
    ]
    assert found.rows == pq.read_metadata(found.files[0]).num_rows
    assert found.schema.names == pq.read_schema(found.files[0]).names
    wait_for(lambda: listener.connections == 1)
    assert listener.heard == b""


def test_an_unknown_column_is_named_with_the_one_that_was_meant(project, listener):
    wrong = dataclasses.replace(
        weather, keys={"origin": "origin", "moment": "date_trunc('HOUR', sched_dep)"}
    )
    assert sentence(of(wrong, plane)) == (
        "flights_enriched: lookup weather: keys.moment: no column 'sched_dep' in data/raw/flights. "
        "Did you mean 'scheduled_departure'?"
    )
    assert listener.connections == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"input": Input(path="data/raw/flights", row_id=["carrier", "fligt"])},
            "input: row_id: no column 'fligt'",
        ),
        (
            {"event_time": EventTime("departure", max_out_of_orderness=timedelta(0))},
            "event_time: no column 'departure'",
        ),
        ({"mode": "key_ordered", "key": ["tailnum"]}, "key: no column 'tailnum'"),
        (
            {"event_time": EventTime("carrier", max_out_of_orderness=timedelta(0))},
            "'carrier' is string; it must be",
        ),
    ],
)
def test_every_field_that_names_a_column_is_checked(project, listener, fields, message):
    assert f"flights_enriched: {message.split(':')[0]}" in sentence(
        of(**fields)
    ) or message in sentence(of(**fields))
    assert message in sentence(of(**fields))


def test_columns_are_found_whatever_their_case(project, listener):
    shouted = dataclasses.replace(plane, keys={"tailnum": "TAIL_NUMBER"})
    preflight(
        of(
            weather,
            shouted,
            event_time=EventTime("Scheduled_Departure", max_out_of_orderness=timedelta(0)),
        ),
        DAY,
    )


def test_a_column_that_the_input_has_is_refused_with_the_rename(project, listener):
    wrong = dataclasses.replace(
        weather, returns="dest STRING, wind_ms DOUBLE", paths={"dest": "$.at.dest"}, ranges={}
    )
    assert sentence(of(wrong)) == (
        "flights_enriched: lookup weather: returns: 'dest' exists in the input. "
        'Rename it here: returns="weather_dest STRING", paths={"weather_dest": "$.at.dest"}.'
    )


def test_a_column_that_its_own_key_reads_is_refused_with_the_rename(project, listener):
    wrong = dataclasses.replace(weather, returns="origin STRING", paths={}, ranges={})
    with pytest.raises(DeclarationError, match="returns and paths, say to weather_origin"):
        of(wrong)


def test_a_suggested_rename_keeps_the_default_path(project, listener):
    wrong = dataclasses.replace(weather, returns="Carrier STRING", paths={}, ranges={})
    assert (
        'Rename it here: returns="weather_Carrier STRING", paths={"weather_Carrier": "$.Carrier"}.'
        in sentence(of(wrong))
    )


@pytest.mark.parametrize("column", ["_late", "_Output_Seq", "_weather_attempts"])
def test_an_input_column_that_would_be_overwritten_by_the_audit_is_refused(column):
    with pytest.raises(
        DeclarationError, match=f"input: {column!r} is a column that Tidegate writes"
    ):
        check_columns(
            flights, ["carrier", "flight", "origin", "scheduled_departure", "tail_number", column]
        )


@pytest.mark.parametrize(("column", "mark"), [("a.b", "dot"), ("a`b", "backtick")])
def test_an_input_column_whose_name_spark_would_take_apart_is_refused(column, mark):
    with pytest.raises(
        DeclarationError, match=f"input: '{column}' has a {mark} in its name. Rename the column."
    ):
        check_columns(flights, ["carrier", column])


@pytest.mark.parametrize("column", ["*", "__key_0_0", "__Key_1_12", "__partition_of_frame"])
def test_an_input_column_with_a_reserved_name_is_refused(column):
    with pytest.raises(
        DeclarationError, match=f"input: '{re.escape(column)}' means something else to "
    ):
        check_columns(flights, ["carrier", column])


def test_columns_that_differ_only_in_case_are_refused():
    with pytest.raises(
        DeclarationError,
        match=(
            r"input: 'Origin' and 'ORIGIN' differ only in case, which Spark "
            r"ignores\. Rename one\."
        ),
    ):
        check_columns(flights, ["Origin", "ORIGIN", "dest"])


def test_a_lookup_whose_status_column_exists_in_the_input_is_refused_with_a_rename():
    columns = [
        "carrier",
        "flight",
        "origin",
        "scheduled_departure",
        "tail_number",
        "weather_status",
    ]
    with pytest.raises(
        DeclarationError,
        match=(
            r"'weather_status' exists in the input. Rename the "
            r"lookup: its name"
        ),
    ):
        check_columns(flights, columns)


def test_files_that_hold_the_partition_column_too_are_refused(project, listener, tmp_path):
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    table = pq.ParquetFile(f"data/raw/flights/date={DAY}/part-00000.parquet").read()
    pq.write_table(
        table.append_column("Date", pa.array([DAY] * table.num_rows)), folder / "part.parquet"
    )
    wrong = of(input=Input(path=str(tmp_path / "raw"), row_id=flights.input.row_id))
    assert "input: the files hold a column 'date', and so do their folders' names" in sentence(
        wrong
    )


def test_an_input_that_the_table_cannot_take_is_refused_before_any_request(
    project, listener, tmp_path
):
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    table = pq.ParquetFile(f"data/raw/flights/date={DAY}/part-00000.parquet").read()
    clocks = pa.nulls(table.num_rows, pa.time64("us"))
    pq.write_table(table.append_column("boarding", clocks), folder / "part.parquet")
    message = sentence(of(input=Input(path=str(tmp_path / "raw"), row_id=flights.input.row_id)))
    assert message.startswith("flights_enriched: input: 'boarding' in ")
    assert message.endswith(
        "/part.parquet is a time of day, which a Delta table cannot store. Write it as text."
    )
    assert listener.connections == 0


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_secret_is_named_with_the_place_to_set_it(project, monkeypatch, value):
    monkeypatch.delenv("WEATHER_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("WEATHER_URL", value)
    assert sentence() == (
        "flights_enriched: lookup weather: WEATHER_URL is not set. It is read from the environment "
        "of the driver and the executors: set it where Dagster, or this command, is started, or in "
        "the file .env there."
    )


def test_a_missing_secret_of_a_database_is_named_with_its_lookup(project, listener, monkeypatch):
    monkeypatch.delenv("PLANES_URL")
    assert sentence().startswith("flights_enriched: lookup plane: PLANES_URL is not set.")


def test_a_secret_that_is_not_an_address_is_named(project, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", "weather:8088")
    message = sentence()
    assert message.startswith(
        "flights_enriched: service weather_api: url is Env('WEATHER_URL'), whose value is not an "
        "http:"
    )
    assert "weather:8088" not in message


def test_a_secret_that_no_header_can_hold_is_named_before_any_request(
    project, listener, monkeypatch
):
    monkeypatch.setenv("WEATHER_KEY", "key-of-a-file\n")
    known = dataclasses.replace(weather.service, auth=Bearer(Env("WEATHER_KEY")))
    message = sentence(of(dataclasses.replace(weather, service=known)))
    assert message.startswith("flights_enriched: lookup weather: WEATHER_KEY holds a line break")
    assert "key-of-a-file" not in message
    assert listener.connections == 0


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_an_invalid_host_name_is_named(project, monkeypatch, host):
    monkeypatch.setenv("WEATHER_URL", f"http://{host}")
    assert sentence().startswith(
        f"flights_enriched: service weather_api: http://{host} has no valid host name: "
    )


def test_a_service_that_refuses_the_connection_is_tried_three_times_and_nothing_is_written(
    project, monkeypatch, closed_port
):
    monkeypatch.setenv("WEATHER_URL", f"http://127.0.0.1:{closed_port}")
    message = sentence(raises=RunStopped)
    assert re.fullmatch(
        rf"flights_enriched: service weather_api: http://127.0.0.1:{closed_port} refused the "
        r"connection "
        r"\(3 tries in \d+\.\d s\)\. Nothing was called, nothing was written\.",
        message,
    )
    assert not Path("data/published").exists()
    assert not Path("data/runs").exists()


def test_only_scheme_host_and_port_of_an_address_in_the_environment_are_shown(
    project, monkeypatch, closed_port
):
    monkeypatch.setenv("WEATHER_URL", f"http://127.0.0.1:{closed_port}/t0k3n-of-ours")
    assert f"http://127.0.0.1:{closed_port} refused the connection" in sentence(raises=RunStopped)


def test_an_unknown_host_is_reported(project):
    unknown = Service(name="weather_api", url="http://no-such-host.invalid", max_concurrency=1)
    message = sentence(of(dataclasses.replace(weather, service=unknown)), raises=RunStopped)
    assert "service weather_api: http://no-such-host.invalid cannot be reached: " in message
    assert message.endswith("Nothing was called, nothing was written.")


def test_a_connection_that_is_reset_is_named_though_its_error_has_no_text(project, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WEATHER_URL", f"https://127.0.0.1:{server.getsockname()[1]}")
        closing = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(3)])
        closing.start()
        assert " cannot be reached: ConnectionResetError (3 tries" in sentence(raises=RunStopped)
        closing.join()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "sqlite+aiosqlite:///data/demo/plains.db",
            "there is no file data/demo/plains.db. Nothing was called.",
        ),
        (
            "sqlite:///data/demo/planes.db",
            "url: sqlite is neither sqlite+aiosqlite nor postgresql+asyncpg, whose",
        ),
        ("planes.db", "url is not one that SQLAlchemy can use with asyncio"),
        (
            "postgresql://a:1,b:2/x",
            "as postgresql+asyncpg://reader@/fleet?host=a:5432&host=b:5432.",
        ),
        ("nosuch+driver://x", "url: nosuch+driver is neither sqlite+aiosqlite nor"),
        (
            "mysql+aiomysql://x",
            "mysql+aiomysql is neither sqlite+aiosqlite nor postgresql+asyncpg, whose",
        ),
        ("postgresql+psycopg://x", "url: postgresql+psycopg is neither sqlite+aiosqlite nor"),
        ("postgresql+asyncpg://x", "url, postgresql+asyncpg, needs asyncpg; it is not installed"),
        (
            "sqlite+aiosqlite:///data/raw/flights/date=2013-01-10/part-00000.parquet",
            "cannot be reached: file is not a",
        ),
        (
            "sqlite+aiosqlite:///file:data/demo/plains.db?mode=ro&uri=true",
            "cannot be reached: unable to open",
        ),
        ("sqlite+aiosqlite://", "has no table 'planes'"),
    ],
)
def test_a_database_that_cannot_be_used_is_reported(project, listener, monkeypatch, url, message):
    monkeypatch.setitem(sys.modules, "asyncpg", None)  # as without the extra
    monkeypatch.setenv("PLANES_URL", url)
    refused = sentence()
    assert refused.startswith("flights_enriched: lookup plane: ")
    assert message in refused


def test_a_locked_database_stops_the_run_as_an_outage(project, listener):
    other = sqlite3.connect("data/demo/planes.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    chosen = dataclasses.replace(
        plane,
        table=None,
        select="SELECT * FROM planes WHERE tailnum = :tailnum",
        attempt_timeout=0.1,
    )
    with contextlib.closing(other):
        for lookup in (chosen, dataclasses.replace(plane, attempt_timeout=0.1)):
            said = sentence(of(weather, lookup), raises=RunStopped)
            assert "service plane database: " in said
            assert said.endswith("cannot be reached: database is locked.")


def test_a_read_only_database_can_be_used(project, listener, monkeypatch):
    monkeypatch.setenv(
        "PLANES_URL", "sqlite+aiosqlite:///file:data/demo/planes.db?mode=ro&uri=true"
    )
    preflight(flights, DAY)


def test_the_password_of_a_database_is_not_shown(project, listener, monkeypatch, tmp_path):
    sqlite3.connect(tmp_path / "empty.db").close()
    monkeypatch.setenv("PLANES_URL", f"sqlite+aiosqlite://me:s3cret@/{tmp_path}/empty.db")
    assert "s3cret" not in sentence()


@pytest.mark.parametrize(
    ("expression", "refused"),
    [
        ("carrier", None),
        ("(upper(tail_number))", None),
        ("cast(flight as string)", None),
        ("hash(tail_number)", None),  # its type shows in Spark only
        ("flight", "bigint"),
        ("(FLIGHT)", "bigint"),
        ("cast(tail_number as double)", "double"),
        ("scheduled_departure", "timestamp"),
    ],
)
def test_a_key_of_another_type_than_its_column_is_refused_before_the_run(
    project, listener, expression, refused
):
    declared = of(weather, dataclasses.replace(plane, keys={"tailnum": expression}))
    if refused is None:
        preflight(declared, DAY)
        return
    said = sentence(declared)
    assert said.startswith("flights_enriched: lookup plane: keys.tailnum: ")
    if refused == "timestamp":
        assert said.endswith(
            "SQLite has no timestamps; give the key as the text that the table holds, by "
            "date_format(...)"
        )
    else:
        assert (
            f"the key is {refused}, and the column tailnum of planes is TEXT; they are not compared"
            in said
        )
        assert said.endswith(f'Write "cast({expression} as string)".')


def test_a_missing_table_is_named(project, listener):
    wrong = dataclasses.replace(plane, table="plains")
    assert sentence(of(weather, wrong)).endswith("has no table 'plains'.")


@pytest.mark.parametrize(
    "fields", [{"returns": "maker STRING", "ranges": {}}, {"keys": {"maker": "tail_number"}}]
)
def test_a_missing_column_of_a_table_is_named_with_those_it_has(project, listener, fields):
    message = sentence(of(weather, dataclasses.replace(plane, **fields)))
    assert (
        "flights_enriched: lookup plane: no column 'maker' in table planes. It has: tailnum, "
        "year, type,"
    ) in message


def test_a_day_without_a_folder_is_named(project, listener):
    assert sentence(day="2013-01-11") == (
        "flights_enriched: input: there is no data/raw/flights/date=2013-01-11 for 2013-01-11; "
        "nothing can be enriched."
    )


def test_a_folder_without_parquet_files_is_named(project, listener, tmp_path):
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    for name in ("_SUCCESS", "notes.txt", "._part.parquet", "_part.parquet"):
        (folder / name).write_text("x")
    message = sentence(of(input=Input(path=str(tmp_path / "raw"))))
    assert message.endswith(f"date={DAY} holds no .parquet file. It holds notes.txt.")


def test_a_file_with_numbers_that_arrow_lacks_is_named(tmp_path):
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    pl.DataFrame({"n": pl.Series([1], dtype=pl.Int128)}).write_parquet(folder / "part-0.parquet")
    message = sentence(of(input=Input(path=str(tmp_path / "raw"))))
    assert (
        f"date={DAY}/part-0.parquet is not a readable Parquet file: Integers with more" in message
    )


@pytest.mark.parametrize("damage", ["text", "cut", "empty"])
def test_a_corrupt_file_is_named(project, listener, tmp_path, damage):
    folder = tmp_path / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    whole = Path(f"data/raw/flights/date={DAY}/part-00000.parquet").read_bytes()
    (folder / "part-0.parquet").write_bytes(whole)
    (folder / "part-1.parquet").write_bytes(
        {"text": b"no Parquet at all", "cut": whole[:-9], "empty": b""}[damage]
    )
    message = sentence(of(input=Input(path=str(tmp_path / "raw"))))
    assert f"date={DAY}/part-1.parquet is not a readable Parquet file: " in message
    assert message.endswith(". Write it again, or remove it.")


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("origin", {"origin"}),
        ("date_trunc('HOUR', scheduled_departure)", {"scheduled_departure"}),
        ("`tail number`", {"tail number"}),
        ("address.city", {"address"}),
        ("concat(carrier, '-', cast(flight as string))", {"carrier", "flight"}),
        ("case when dest is null then origin else dest end", {"dest", "origin"}),
        ('lower("NYC")', set()),
        ("transform(stops, stop -> upper(stop))", {"stops"}),
        ("scheduled_departure - interval 1 hour", {"scheduled_departure"}),
        ("current_date()", set()),
        ("tags[0]", {"tags"}),
    ],
)
def test_preflight_finds_the_columns_of_an_expression(expression, columns):
    assert columns_in("keys.k", expression) == columns


def test_secrets_are_read_only_where_they_are_used(monkeypatch):
    monkeypatch.delenv("GEO_URL", raising=False)
    HttpLookup(
        name="a", service=Service(name="geo", url=Env("GEO_URL"), max_concurrency=1),
        request="GET /{k}", keys={"k": "k"}, returns="x INT", timeout=1.0,
    )  # fmt: skip


@pytest.fixture
def towns(tmp_path, monkeypatch):
    """Writes a day of input; gives the enrichment that reads it."""
    monkeypatch.chdir(tmp_path)

    def make(*, raw="raw", out="out", file="part-0.parquet", folder=f"date={DAY}", **columns):
        Path(raw, folder).mkdir(parents=True)
        with Path(raw, folder, file).open("wb") as opened:
            pq.write_table(pa.table({"tail_number": ["a"]} | columns), opened)
        return of(plane, input=Input(path=raw), output=Output(path=out), event_time=None)

    monkeypatch.setenv("PLANES_URL", "sqlite+aiosqlite:///nowhere.db")
    return make


@pytest.mark.parametrize(
    "column",
    ["_metadata", "_METADATA", "_source_file", "_source_row", "_Source_File", "_row", "_uri"],
)
def test_an_input_column_with_the_name_of_a_source_column_is_refused(towns, column):
    assert sentence(towns(**{column: ["x"]})) == (
        f"flights_enriched: input: {column!r} is a name under which Spark and Tidegate keep where "
        "a row came from. Rename the column."
    )


def test_a_row_id_of_changed_rows_that_is_not_a_plain_value_is_refused(towns):
    enrichment = towns(folder="part=all", id=[{"a": 1}])
    changed = Input(path="raw", partition="part", every=["all"], row_id=["id"], rows="changed")
    enrichment = dataclasses.replace(enrichment, input=changed, publish_by=None)
    assert sentence(enrichment, "all") == (
        "flights_enriched: input: row_id: id: 'id' is struct<a: int64>; rows are identified by "
        "plain values."
    )


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b", "a]b", "a{b}", "a\\b"])
@pytest.mark.parametrize("where", ["raw", "out", "file"])
def test_a_path_with_pattern_characters_of_spark_is_refused(towns, where, name):
    message = sentence(towns(**{where: f"{name}.parquet"}))
    assert f"flights_enriched: {'output' if where == 'out' else 'input'}: /" in message
    assert message.endswith(f"has {name[1]!r}, which Spark takes for a pattern. Rename it.")


@pytest.mark.parametrize("where", ["output", "ledger"])
def test_a_path_in_a_circle_of_links_is_refused(towns, tmp_path, where):
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    declared = towns(out="a" if where == "output" else "out")
    declared = dataclasses.replace(
        declared, ledger=Ledger("a/c" if where == "ledger" else "ledger")
    )
    place = tmp_path / "a" if where == "output" else "a/c"
    message = f"{where}: {place} is a circle of links. Remove one of them."
    assert sentence(declared) == f"flights_enriched: {message}"


def test_a_ledger_that_is_a_file_is_refused(towns):
    Path("answers").touch()
    declared = dataclasses.replace(towns(), ledger=Ledger("answers"))
    message = "ledger: answers is a file. Name a folder, or move the file."
    assert sentence(declared) == f"flights_enriched: {message}"


def test_an_output_that_delta_would_write_elsewhere_is_refused(towns, tmp_path):
    assert sentence(towns(out="a%20b")) == (
        f"flights_enriched: output: {tmp_path}/a%20b has '%20', which Delta takes for one "
        "character. Rename it."
    )


@pytest.mark.parametrize(
    "folder", ["date=20130110", "date=2013-1-10", "dt=2013-01-10", "date=2013-01-10T00"]
)
def test_a_day_whose_folder_is_named_otherwise_is_reported_with_that_folder_and_the_name_it_needs(
    towns, folder
):
    assert sentence(towns(folder=folder)) == (
        f"flights_enriched: input: there is no raw/date={DAY} for {DAY}; nothing can be enriched. "
        f"There is raw/{folder}; the folder of a day is named date=YYYY-MM-DD (Input.partition)."
    )


def test_a_missing_day_is_reported_without_the_name_of_another_day(towns):
    assert sentence(towns(folder="date=2013-01-11")).endswith(
        "for 2013-01-10; nothing can be enriched."
    )
