"""What several folders of tests stand on: one Spark session, the demo's real day, its services,
small tables.
"""

import ast
import atexit
import datetime as dt
import functools
import gc
import os
import re
import secrets
import shutil
import sys
import tempfile

import hypothesis
import pytest

from jobs.process.spark_submit import archived_classes
from tests.support.sources import ROOT

# Machines are busy: a slow example says nothing. `make test` draws the same examples each time, so
# that it is green or red for what was changed; `make proof` draws new ones and twice as
# many (tests/support/examples.py).
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.load_profile("same")
DAY = "2013-01-10"


# fixtures that start Spark, a process or a server
STARTING = {
    "spark",
    "service",
    "postgres",
    "s3",
    "weather_service",
    "dagster_project",
    "cluster",
    "new_cluster",
    "page",
}
# files that take long, the longest first
LONG = (
    "jobs/tables/test_kills_at_a_store.py",
    "data_quality/test_planted_faults.py",
    "jobs/run/test_runs_on_failing_storage.py",
    "orchestration/test_hard_stops.py",
    "jobs/run/test_ledger_runs.py",
    "jobs/tables/test_holders_of_leases.py",
    "jobs/limits/test_rates_of_processes.py",
    "orchestration/airflow/test_real_scheduler.py",
    "orchestration/airflow/test_deadline.py",
    "package/test_ranges.py",
    "orchestration/test_backfill.py",
    "demo/test_run.py",
    "package/test_wheel.py",
    "simulation/test_nights.py",
)
NOT_QUICK = re.compile(
    r"^pytestmark = .*pytest\.mark\.(spark|process|slow|proof|ui)\b", re.MULTILINE
)
SPARK = "pytest.mark.spark"
SPARK_WORKER, WITH_SPARK = "gw0", ", with Spark"
STARTED_BY = {"subprocess.Popen": "a process", "os.fork": "a process", "socket.bind": "a server"}


def pytest_addoption(parser):
    parser.addoption(
        "--quick",
        action="store_true",
        help="only short tests that start no Spark, no process and no server",
    )


def pytest_configure(config):
    """In `make quick` a test that starts something after all fails, and says which marker
    it lacks.
    """
    if config.getoption("--quick"):
        sys.addaudithook(_refuse_to_start)
        if hasattr(config, "workerinput"):
            atexit.register(os._exit, 0)  # freeing all that was loaded takes a second
    elif getattr(config, "workerinput", {}).get("workerid", SPARK_WORKER) != SPARK_WORKER:
        os.nice(3)  # the tests with Spark are the longest row of tests that wait for each other


def _refuse_to_start(event, _arguments):
    if event in STARTED_BY and "PYTEST_CURRENT_TEST" in os.environ:
        raise RuntimeError(f"this test starts {STARTED_BY[event]}: mark it @pytest.mark.process")


def pytest_ignore_collect(collection_path, config):
    """`make quick` does not load files without a quick test: it takes seconds to import what they
    need.
    """
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return (
        True
        if config.getoption("--quick") and is_test and NOT_QUICK.search(collection_path.read_text())
        else None
    )


def pytest_collection():
    """Collect no garbage while the tests are loaded."""
    gc.disable()


def pytest_collection_finish():
    """Let no collection look at what lasts as long as the tests do: a million objects.

    Tests also write declarations again within a second, with a digit changed. Python would take
    the bytecode of the module before: it compares size and whole seconds.
    """
    gc.enable()
    gc.freeze()
    sys.dont_write_bytecode = True


def pytest_collection_modifyitems(config, items):
    """Long files come first, then those that start Spark: no process is left alone at the end."""
    if config.getoption("--quick"):
        items[:] = [item for item in items if not _is_not_quick(item)]
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}
    turn = {config.rootpath / "tests" / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: (turn.get(item.path, len(LONG)), item.path not in with_spark))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the tests with Spark to one worker, while the others have the other tests: each Java less
    saves the processor a minute of its start and of compiling the same code.
    """
    from xdist.scheduler import LoadFileScheduling

    class SparkTogether(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            return file + WITH_SPARK * bool(_tests_with_spark(file) & {test.split("[")[0], "*"})

        def _assign_work_unit(self, node):
            wants = node.gateway.id == SPARK_WORKER
            fitting = (scope for scope in self.workqueue if scope.endswith(WITH_SPARK) is wants)
            if first := next(fitting, None):
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return SparkTogether(config, log) if config.option.dist == "loadfile" else None


@functools.cache
def _tests_with_spark(file):
    """Return the names of the tests that are marked so; "*" if the whole file is."""
    text = (ROOT / file).read_text()
    if SPARK not in text:
        return frozenset()
    return frozenset(
        statement.name if isinstance(statement, ast.FunctionDef) else "*"
        for statement in ast.parse(text).body
        if any(SPARK in ast.unparse(part) for part in _marks(statement))
    )


def _marks(statement):
    if isinstance(statement, ast.FunctionDef):
        return statement.decorator_list
    is_mark = (
        isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    )
    return [statement.value] if is_mark else []


def _is_not_quick(item):
    marked = any(
        item.get_closest_marker(name) for name in ("spark", "process", "slow", "proof", "ui")
    )
    return marked or not STARTING.isdisjoint(item.fixturenames)


# for every Java that the tests start: most end before their code is worth compiling well; a long
# session of proofs compiles more than the 48 MB that this level reserves for code
QUICK_JAVA = (
    f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC {archived_classes()}"
)
os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"

# Runs of different tests do not meet: after a killed one the next would wait until its calls must
# have ended. Tests of limits over runs delete the first variable, or name a store; then runs meet
# below the second one.
os.environ["TIDEGATE_LIMITS_URL"] = "off"
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tidegate-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def spark():
    """One small local Spark for the whole session: two task slots, UTC, no page."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")  # as jobs.run.enrich_day
        # Spark's own rules are not ours to test
        .config("spark.sql.lightweightPlanChangeValidation", "false")
        .config("spark.sql.ui.explainMode", "simple")  # plans as text, which nobody reads here
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres():
    """A real PostgreSQL on loopback, started when the first test asks for it:
    tests/support/postgres_server.py.
    """
    from tests.support.postgres_server import PostgresServer

    with PostgresServer.running() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server():
    """A real HTTP server on loopback that speaks S3: tests/support/s3_server.py."""
    from tests.support.s3_server import S3Server

    with S3Server.running() as server:
        yield server


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The server with its variables set; `s3.bucket` is a new one: s3://name."""
    from jobs.storage import objects, stored_files

    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    stored_files._filesystem.cache_clear()
    objects._store.cache_clear()
    name = f"bucket-{secrets.token_hex(6)}"
    s3_server.make_bucket(name)
    s3_server.bucket = f"s3://{name}"
    return s3_server


@pytest.fixture
def service():
    """A real HTTP service on loopback that does what the test scripts:
    tests/support/scripted_service.py.
    """
    from tests.support.scripted_service import ScriptedService

    scripted = ScriptedService()
    scripted.start()
    yield scripted
    scripted.stop()


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory):
    """The demo's files for one day of flights, prepared once. Nobody writes here."""
    from demo import data

    root = tmp_path_factory.mktemp("demo") / "data"
    data.prepare(root, [dt.date.fromisoformat(DAY)])
    return root


@pytest.fixture
def project(tmp_path, monkeypatch, demo_data):
    """A project's folder of its own with the day of flights in data/, made the current one;
    PLANES_URL is set.
    """
    (tmp_path / "data").mkdir()
    for part in ("raw", "demo"):
        (tmp_path / "data" / part).symlink_to(demo_data / part)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANES_URL", "sqlite+aiosqlite:///data/demo/planes.db")
    return tmp_path


@pytest.fixture
def weather_service(project, monkeypatch):
    """The demo's weather service without latency and faults, with a log of its own; WEATHER_URL is
    set.
    """
    from demo import weather_service as weather

    with weather.running(
        project / "data" / "demo", project / "weather_calls.jsonl", scale=0.0
    ) as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        yield service


@pytest.fixture
def modules_of_others():
    """Lets a test import modules with the names of this repository's, and forgets them after it."""

    def named_so():
        return [name for name in sys.modules if name.split(".")[0] in ("enrichments", "sample")]

    ours = {name: sys.modules.pop(name) for name in named_so()}
    yield
    for name in named_so():
        del sys.modules[name]
    sys.modules.update(ours)
