"""The Spark program is started where it can be, and what is missing is said in a sentence."""

import dataclasses
import datetime as dt
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.commands.planning.plan import plan
from jobs.errors import SparkFailed
from jobs.process.before_spark import SMALL_INPUT, BeforeSpark
from jobs.process.program_end import ended
from jobs.process.spark_needs import java_missing
from jobs.process.spark_submit import SHORT_RUN, SparkSubmit
from tidegate import Enrichment, HttpLookup, Input, Output, Service

DAY = "2013-01-10"


def enrichment_with_a_key_for_spark(folder):
    """A day of one row, and a key that only Spark can evaluate."""
    day = folder / "raw" / f"date={DAY}"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"city": ["Basel "]}), day / "part-0.parquet")
    service = Service(name="towns", url="http://127.0.0.1:9", max_concurrency=1)
    lookup = HttpLookup(
        name="town",
        service=service,
        request="GET /{city}",
        keys={"city": "reverse(city)"},
        returns="n INT",
        timeout=1.0,
    )
    return Enrichment(
        name="towns",
        input=Input(path=str(folder / "raw")),
        lookups=[lookup],
        output=Output(path=str(folder / "out")),
    )


@pytest.mark.parametrize(
    ("home", "message"),
    [
        (
            None,
            (
                "Spark needs Java 17 or newer: none is on PATH, and JAVA_HOME is not set. "
                "TIDEGATE_ENGINE=local runs days without it. Nothing was called."
            ),
        ),
        (
            "/no/java",
            (
                "Spark needs Java 17 or newer: JAVA_HOME is /no/java, which has no bin/java. "
                "TIDEGATE_ENGINE=local runs days without it. Nothing was called."
            ),
        ),
    ],
)
def test_runs_and_plans_report_a_machine_without_java(tmp_path, monkeypatch, home, message):
    assert java_missing() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    log = tmp_path / "spark.log"
    code = SparkSubmit().run("enrichments.flights:flights", days=[DAY], run_id="r1", log=log)
    how = ended(code, log)
    assert how.reason == message
    assert not how.crashed  # tried again by itself it would lack Java again
    # another test's may be there
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(SparkFailed) as failed:
        plan(enrichment_with_a_key_for_spark(tmp_path), [DAY])
    assert str(failed.value) == message


@pytest.mark.proof
@pytest.mark.process
def test_a_day_runs_where_paths_have_spaces_and_letters_that_the_locale_lacks(tmp_path):
    folder = tmp_path / "Jane Döe's files"
    installed = folder / "installed"
    (installed / "bin").mkdir(parents=True)
    (installed / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (installed / "lib").symlink_to(Path(sys.prefix, "lib"))
    (installed / "pyvenv.cfg").symlink_to(Path(sys.prefix, "pyvenv.cfg"))
    file = folder / "in" / f"date={DAY}" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    at = dt.datetime.fromisoformat(f"{DAY}T12:00:00Z")
    pq.write_table(pa.table({"id": [1], "at": [at]}), file)
    (folder / "declared").mkdir()
    (folder / "declared" / "__init__.py").touch()
    (folder / "declared" / "same.py").write_text("from tools.class_archive import TRAINING\n")
    run = [installed / "bin" / "python", "-m", "tidegate", "run", "training", "--day", DAY]
    ended = subprocess.run(
        [*run, "--package", "declared"],
        cwd=folder,
        env=os.environ | {"LC_ALL": "C", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "published" in ended.stdout, ended.stdout + ended.stderr


def test_java_is_started_for_a_short_run_where_the_input_is_small_and_nobody_chose_options(
    tmp_path, monkeypatch
):
    enrichment = enrichment_with_a_key_for_spark(tmp_path)
    before, other = BeforeSpark(enrichment, ignore_ttl=False), "2013-01-11"
    file = tmp_path / f"raw/date={other}/part-0.parquet"
    file.parent.mkdir()
    file.write_bytes(bytes(SMALL_INPUT))
    before.list_files([DAY, other])
    assert [before.is_short(days) for days in ([DAY], [other], [DAY, other])] == [True, True, False]
    on_store = dataclasses.replace(enrichment, input=Input(path="s3://bucket/raw"))
    stored = BeforeSpark(on_store, ignore_ttl=False)
    stored.list_files([DAY])
    assert not stored.is_short([DAY])
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")  # of tests/conftest.py
    assert SparkSubmit().for_short_run().java_options == SHORT_RUN
    assert SparkSubmit(master="yarn").for_short_run().java_options == ""
    assert SparkSubmit(java_options="-Xss2m").for_short_run().java_options == "-Xss2m"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xint")
    assert SparkSubmit().for_short_run().java_options == ""


@pytest.mark.proof
@pytest.mark.process
def test_a_short_run_starts_with_the_collector_that_spark_is_configured_with(tmp_path, monkeypatch):
    """Of two collectors Java takes none, and does not start."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")  # of tests/conftest.py
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -XX:+UseG1GC\n")
    (tmp_path / "program.py").touch()
    short = SparkSubmit().for_short_run()
    with short.program_started(
        tmp_path / "program.py", [], name="p", log=tmp_path / "spark.log"
    ) as wait:
        code = wait(60.0)
    assert (short.java_options, code) == (SHORT_RUN, 0), (tmp_path / "spark.log").read_text()


LANGUAGE_OF_JAVA = """
import sys
from pyspark.java_gateway import launch_gateway
sys.exit(launch_gateway().jvm.java.util.Locale.getDefault().getLanguage() != "en")
"""


@pytest.mark.proof
@pytest.mark.process
def test_spark_lowers_texts_as_in_english_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr")
    (tmp_path / "program.py").write_text(LANGUAGE_OF_JAVA)
    log = tmp_path / "spark.log"
    with SparkSubmit().program_started(tmp_path / "program.py", [], name="p", log=log) as wait:
        code = wait(60.0)
    assert code == 0, log.read_text()


@pytest.mark.process
def test_a_failed_start_of_spark_is_reported_with_its_cause(tmp_path):
    log = tmp_path / "spark.log"
    too_odd = SparkSubmit(conf={"spark.driver.memory": "1x"})
    code = too_odd.run("enrichments.flights:flights", days=[DAY], run_id="r1", log=log)
    cannot, where = "Spark cannot start", f"Nothing was called. The run's log: {log}"
    assert ended(code, log).reason == f"{cannot}: Invalid maximum heap size: -Xmx1x. {where}"
    log.write_text(  # of the master locl[2]
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or '
        "start with spark, "
        "k8s, or local\n\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n"
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n"
    )
    why = "Master must either be yarn or start with spark, k8s, or local"
    assert ended(code, log).reason == f"{cannot}: {why}. {where}"


NO_MEMORY = """Error occurred during initialization of VM
Could not allocate compressed class space: 1073741824 bytes
/v/pyspark/bin/spark-class: line 97: CMD: bad array subscript
"""
NO_FILES = """Error: A JNI error has occurred, please check your installation and try again
Exception in thread "main" java.lang.InternalError: Error loading java.security file
\tat java.base/java.security.Security.initialize(Security.java:106)
\tat java.base/sun.launcher.LauncherHelper.checkAndLoadMain(LauncherHelper.java:703)
"""


@pytest.fixture
def few_files():
    """Lets this process open 256 files, during the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize(
    ("logged", "why"),
    [
        (NO_MEMORY, "Could not allocate compressed class space: 1073741824 bytes"),
        (NO_FILES, "Error loading java.security file"),
    ],
)
def test_a_java_process_stopped_by_a_memory_limit_is_reported_with_the_limit(tmp_path, logged, why):
    log = tmp_path / "spark.log"
    log.write_text(logged)
    assert ended(1, log).reason == (
        f"Spark cannot start: {why}. Low limits of this process may be the cause: 256 open files "
        f"(ulimit -n). Nothing was called. The run's log: {log}"
    )


def test_a_wrong_spark_home_and_a_user_without_a_name_are_reported_before_spark_starts(
    tmp_path, monkeypatch
):
    log = tmp_path / "spark.log"

    def reason():
        code = SparkSubmit().run("enrichments.flights:flights", days=[DAY], run_id="r1", log=log)
        return ended(code, log).reason

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert reason() == (
        f"Spark cannot start: SPARK_HOME is {tmp_path}, which has no bin/spark-class. Unset it, "
        "and the Spark of this environment is used. Nothing was called."
    )
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_000)
    assert reason() == (
        "Spark cannot start for the user 4000000000, who has no name in /etc/passwd: add it "
        "there, or start the container as a user who has. TIDEGATE_ENGINE=local runs days without "
        "Spark. Nothing was called."
    )


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_a_project_that_hides_modules_of_python_is_reported_before_a_program_starts(
    tmp_path, monkeypatch, engine
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "types.py").touch()
    (tmp_path / "email").mkdir()
    (tmp_path / "email" / "__init__.py").touch()
    log = tmp_path / "spark.log"
    code = SparkSubmit(engine=engine).run("orders:orders", days=[DAY], run_id="r1", log=log)
    assert ended(code, log).reason == (
        f"a program could not import email, types of Python: {tmp_path} has a file or package of that "
        "name. Rename it. Nothing was called."
    )


@pytest.mark.parametrize(
    ("version", "number"), [("1.8.0_392", 8), ("11.0.20", 11), ("17.0.9", None), ("21", None)]
)
def test_a_java_that_is_too_old_is_reported_with_where_it_was_found(
    tmp_path, monkeypatch, version, number
):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(0o755)
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    needs, cure = (
        "Spark needs Java 17 or newer:",
        "Set JAVA_HOME to a newer one. Nothing was called.",
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_missing() == (
        f"{needs} JAVA_HOME is {tmp_path}, which has Java {number}. {cure}" if number else ""
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java_missing() == (f"{needs} {java} is Java {number}. {cure}" if number else "")


@pytest.mark.parametrize("code", [1, 70])
def test_a_program_whose_disk_is_full_is_reported_with_the_room_that_is_left(tmp_path, code):
    log = tmp_path / "log"
    log.touch()
    full = f" The disk of {tmp_path} has 4,096 bytes left: make room, then run it again."
    assert full in ended(code, log, lambda _: 4096).reason
    assert full not in ended(code, log, lambda _: 1 << 30).reason
