"""The same job file on a real standalone cluster: a master, two workers of one core, executors in
their own folders.
"""

import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import venv_pack
from packaging.requirements import Requirement

from demo import weather_service as weather
from jobs.process.packing import NEEDED, package
from jobs.schema import columns as schema
from jobs.tables.records import run_records

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "jobs/run/enrich_day.py"
DAY = "2013-01-10"
FLIGHTS = ("--enrichment", "enrichments.flights:flights", "--day", DAY)
EXECUTORS_NEED = (
    "pyarrow",
    "pandas",
    "aiohttp",
    "sqlalchemy",
    "greenlet",
    "aiosqlite",
    "orjson",
    "sqlglot",
    "python-jsonpath",
)
IN_FLIGHT = 10  # weather calls of one task at most: the other may have left it its half
FLUSH_S = 0.5  # of the ledger
A_WRITE = 0.5  # s that writing a part may take on a busy machine
FILES = 4  # of the day: two tasks of two files


@pytest.fixture
def day_in_files(project):
    """The day of flights again, in several files, so that there is work for two executors. Returns
    its rows.
    """
    whole = project / "data" / "raw" / "flights" / f"date={DAY}" / "part-00000.parquet"
    table = pq.ParquetFile(whole).read()
    (project / "data" / "raw").unlink()
    folder = project / "data" / "raw" / "flights" / f"date={DAY}"
    folder.mkdir(parents=True)
    for number in range(FILES):
        rows = -(-table.num_rows // FILES)
        pq.write_table(table.slice(number * rows, rows), folder / f"part-{number}.parquet")
    return table


@pytest.fixture
def services(project, monkeypatch):
    """Starts the weather service, its latencies times `scale`; executors find it by the cluster's
    environment.
    """
    data, log = project / "data" / "demo", project / "weather_calls.jsonl"
    with contextlib.ExitStack() as running:

        def start(scale):
            service = running.enter_context(weather.running(data, log, scale=scale))
            found = {
                "WEATHER_URL": service.url,
                "PLANES_URL": f"sqlite+aiosqlite:///{data / 'planes.db'}",
            }
            for name, value in found.items():
                monkeypatch.setenv(name, value)
            return service, found

        yield start


class Output:
    """What a submit says, read as it comes."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def to_the_end(self, seconds=300):
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.terminate()
        self._reader.join(30)
        self.process.stdout.close()
        assert code == 0, "".join(self.lines)[-6000:]
        return "".join(self.lines)


def own_address():
    """This machine's address in its network, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return probe.getsockname()[0]
    return "127.0.0.1"


def wait_for(condition, output, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
        assert output.process.poll() is None, "".join(output.lines)[-6000:]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def every_row_once(given, record):
    rows = [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]
    assert record.figures.rows_in == record.figures.rows_out == len(rows) == given.num_rows
    identity = ("carrier", "flight", "origin", "scheduled_departure")
    assert Counter(tuple(row[name] for name in identity) for row in rows) == Counter(
        tuple(row[name] for name in identity) for row in given.to_pylist()
    )
    carried = {tuple(row[name] for name in identity): row for row in rows}
    for row in given.to_pylist():
        written = carried[tuple(row[name] for name in identity)]
        assert {name: written[name] for name in row} == row
    return rows


def own_answers(rows, project):
    """Rows with the weather of their own origin and moment, as the service's table says; most have
    one.
    """
    answers = weather.load(project / "data" / "demo")
    own = [row for row in rows if row[schema.status("weather")] == "ok"]
    for row in own:
        answer = answers[f"{row['origin']}/{row['scheduled_departure']:%Y-%m-%dT%H}:00:00Z"]
        assert (row["temp_c"], row["wind_ms"]) == (answer["temp_c"], answer["wind"]["speed"])
    assert len(own) > 0.9 * len(rows)


def test_the_day_runs_on_a_cluster_with_the_packages_shipped_by_py_files(
    project, day_in_files, services, cluster
):
    _, environment = services(scale=0.0)
    assert (
        subprocess.run(
            [cluster.python, "-c", "import jobs"], capture_output=True, check=False
        ).returncode
        != 0
    )
    cluster.start(**environment)
    packages = package(project / "packages.zip", ["enrichments"]).zip
    # as from another host
    elsewhere = {"spark.driver.host": own_address(), "spark.driver.bindAddress": "0.0.0.0"}
    message = Output(
        cluster.submit("--py-files", str(packages), *FLIGHTS, program=PROGRAM, conf=elsewhere)
    ).to_the_end()
    (record,) = run_records.load("flights_enriched", DAY)
    rows = every_row_once(day_in_files, record)
    assert {row[schema.PARTITION] for row in rows} == {0, 1}
    own_answers(rows, project)
    # the executors told the driver how far they were
    assert f"{len(rows)} of {len(rows)} rows" in message
    assert "is not reached" not in message
    assert record.figures.loop_busy is not None
    assert all(lookup.limited_by for lookup in record.figures.lookups)


def test_the_day_runs_on_a_cluster_whose_master_workers_and_drivers_share_a_secret(
    project, day_in_files, services, cluster
):
    _, environment = services(scale=0.0)
    conf = project / "conf"
    conf.mkdir(mode=0o700)
    (conf / "spark-defaults.conf").write_text(
        f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(16)}\n"
    )
    cluster.start(SPARK_CONF_DIR=str(conf), **environment)
    files = ("--py-files", str(package(project / "packages.zip", ["enrichments"]).zip))
    message = Output(
        cluster.submit(*files, *FLIGHTS, program=PROGRAM, SPARK_CONF_DIR=str(conf))
    ).to_the_end()
    (record,) = run_records.load("flights_enriched", DAY)
    own_answers(every_row_once(day_in_files, record), project)
    assert "is not reached" not in message


def test_a_worker_and_its_executor_killed_in_the_middle_cost_no_row_and_few_repeated_calls(
    project, day_in_files, services, cluster
):
    service, environment = services(scale=4.0)
    cluster.start(**environment)
    packages = package(project / "packages.zip", ["enrichments"]).zip
    output = Output(cluster.submit("--py-files", str(packages), *FLIGHTS, program=PROGRAM))
    wait_for(lambda: len(service.calls()) > 0.25 * day_in_files.num_rows, output)
    killed = cluster.kill_a_worker()
    message = output.to_the_end()
    (record,) = run_records.load("flights_enriched", DAY)
    rows = every_row_once(day_in_files, record)
    own_answers(rows, project)
    # the second attempt took over what the first had told
    assert f"{len(rows)} of {len(rows)} rows" in message
    calls = service.calls()
    before = [call for call in calls if call.t_end < killed]
    assert len(before) < 0.9 * len({call.key for call in calls})  # else it was no middle
    its_keys = keys_of_tasks(rows, tasks_that_spark_tried_again(project, record))
    answers = {
        key: [call.t_end for call in calls if call.key == key and call.outcome == "ok"]
        for key in its_keys
    }
    again = sum(max(0, len(moments) - 1) for moments in answers.values())
    since = killed - max(FLUSH_S, A_WRITE) - A_WRITE  # when the last part that was stored was begun
    lost = IN_FLIGHT + sum(
        since < min(moments) <= killed for moments in answers.values() if moments
    )
    print(
        f"killed after {len(before)} calls; {again} of {len(its_keys)} keys of the task answered "
        f"again, of {lost}"
    )
    assert again <= lost


def tasks_that_spark_tried_again(project, record):
    """Those whose second attempt stored answers."""
    parts = (project / "data" / "ledger" / "weather").glob(
        f"*/parts/{record.facts.run_id}*/*.parquet"
    )
    found = {
        int(task)
        for task, attempt, *_ in (part.name.split("-") for part in parts)
        if attempt != "0"
    }
    assert found
    return found


def keys_of_tasks(rows, tasks):
    """Keys that these tasks asked and no other one, as tasks do not share calls."""
    asked_by = {}
    for row in rows:
        key = f"{row['origin']}/{row['scheduled_departure']:%Y-%m-%dT%H:%M:%SZ}"
        asked_by.setdefault(key, set()).add(row[schema.PARTITION])
    return {
        key for key, partitions in asked_by.items() if len(partitions) == 1 and partitions <= tasks
    }


def test_executors_get_the_whole_environment_as_an_archive(
    project, day_in_files, services, new_cluster, tmp_path
):
    _, environment = services(scale=0.0)
    archive = packed_environment(tmp_path / "packed")
    # in the folder that Spark makes for the executor
    cluster = new_cluster(python=Path("environment/bin/python"))
    cluster.start(**environment)
    Output(
        cluster.submit("--archives", f"{archive}#environment", *FLIGHTS, program=PROGRAM)
    ).to_the_end()
    (record,) = run_records.load("flights_enriched", DAY)
    own_answers(every_row_once(day_in_files, record), project)


def packed_environment(folder):
    """What docs/cluster.md makes with pip and venv-pack, from the packages that are installed here
    already.
    """
    folder.mkdir()
    home = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    for name in with_requirements(EXECUTORS_NEED):
        for file in metadata.files(name):
            source, target = Path(file.locate()), site / file
            if ".." not in file.parts and source.is_file() and "__pycache__" not in file.parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for name in (*NEEDED, "enrichments"):
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    archive = folder / "environment.tar.gz"
    venv_pack.pack(prefix=str(home), output=str(archive), compress_level=1)
    return archive


def with_requirements(names):
    """These distributions and all that they need, without extras."""
    found, waiting = [], list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.append(name)
            needs = [Requirement(text) for text in metadata.requires(name) or ()]
            waiting += [
                need.name.lower()
                for need in needs
                if need.marker is None or need.marker.evaluate({"extra": ""})
            ]
    return found
