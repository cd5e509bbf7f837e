"""Settings of Spark that a user adds reach Spark, or are refused before it starts."""

import argparse
import subprocess
import sys

import pytest

from jobs.errors import DeclarationError
from jobs.process.spark_conf import SPARK_CONF
from jobs.process.spark_submit import SparkSubmit, python_environment, spark_submit_from_environment
from jobs.run.engines.local_master import start_settings
from jobs.run.engines.spark_session import OF_APPLICATION, OF_SESSION, OF_USER
from tidegate.__main__ import main
from tidegate.commands.days import add_engine

CLUSTER = "spark://driver:7077"
IMAGE = "/opt/env/bin/python"
PROGRAM = """
from jobs.run.engines.spark_session import session
spark = session("settings")
print("SEEN", spark.conf.get("spark.sql.files.maxPartitionBytes"), spark.sparkContext.getConf().get("spark.note"))
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (SPARK_CONF, "TIDEGATE_SPARK_MASTER", "TIDEGATE_ENGINE", "TIDEGATE_LINK_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_an_option_overrides_the_environment_and_later_options_override_earlier_ones(environment):
    environment.setenv(SPARK_CONF, "spark.a=1 'spark.b=-Xss4m -Dx=y'\nspark.c=")
    conf = spark_submit_from_environment(None, ["spark.a=2", "spark.a=x=3"]).conf
    assert conf == {
        "spark.driver.memory": "1g",
        "spark.a": "x=3",
        "spark.b": "-Xss4m -Dx=y",
        "spark.c": "",
    }


def test_a_command_collects_its_spark_settings():
    parser = argparse.ArgumentParser()
    add_engine(parser)
    assert parser.parse_args(["--conf", "spark.a=1", "--conf", "spark.b=2"]).conf == [
        "spark.a=1",
        "spark.b=2",
    ]
    assert parser.parse_args([]).conf == []


@pytest.mark.parametrize(
    "word", ["spark.a", "a=1", "=1", "", "spark.a b=1", "--conf=spark.a=1", "Spark.a=1"]
)
def test_a_malformed_spark_setting_is_refused(word):
    with pytest.raises(
        DeclarationError,
        match=(
            r"--conf: .* is not a setting of Spark; write "
            r"spark.key=value"
        ),
    ):
        spark_submit_from_environment(None, [word])


@pytest.mark.parametrize("master", ["local[2]", CLUSTER])
def test_only_settings_that_tidegate_sets_itself_are_refused(environment, master):
    environment.setenv("TIDEGATE_SPARK_MASTER", master)
    own = OF_SESSION.keys() | OF_APPLICATION.keys() | start_settings(master).keys()
    own |= {"spark.master", "spark.app.name", "spark.driver.extraJavaOptions"}
    for key in own - set(OF_USER):
        with pytest.raises(DeclarationError, match=f"{key}=1 cannot be set: .*; leave it out"):
            spark_submit_from_environment(None, [f"{key}=1"])
    free = [
        "spark.executor.memory",
        "spark.driver.memory",
        "spark.ui.enabled",
        "spark.driver.host",
        "spark.cores.max",
    ]
    for key in free if master == CLUSTER else set(free) - own:
        assert spark_submit_from_environment(None, [f"{key}=1"]).conf[key] == "1"


def test_a_spark_setting_is_refused_where_it_cannot_reach_spark(environment):
    with pytest.raises(DeclarationError, match="the local engine has no Spark; leave --conf out"):
        spark_submit_from_environment("local", ["spark.a=1"])
    environment.setenv("TIDEGATE_SPARK_MASTER", "sc://spark.example:15002")
    with pytest.raises(
        DeclarationError, match="a server of Spark Connect has its own configuration"
    ):
        spark_submit_from_environment(None, ["spark.a=1"])
    environment.setenv(SPARK_CONF, "spark.a=1")
    assert spark_submit_from_environment("local").engine == "local"  # it needs no setting


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (SPARK_CONF, "spark.speculation=true", "a second copy of a task would repeat its calls"),
        (
            SPARK_CONF,
            "'spark.a=1",
            "TIDEGATE_SPARK_CONF: no closing quotation; quote values as in a shell",
        ),
        ("TIDEGATE_LINK_PORT", "seven", "it must be a port, such as 7100, or several"),
    ],
)
def test_check_refuses_the_spark_settings_that_a_run_refuses(
    environment, capsys, name, value, message
):
    environment.setenv(name, value)
    assert main(["check"]) == 2
    assert message in capsys.readouterr().err


def test_cluster_workers_use_the_python_of_their_image(environment):
    environment.setenv("PYSPARK_PYTHON", IMAGE)
    assert python_environment(CLUSTER)["PYSPARK_PYTHON"] == IMAGE
    assert python_environment("local[2]")["PYSPARK_PYTHON"] == sys.executable
    assert python_environment(CLUSTER)["PYSPARK_DRIVER_PYTHON"] == sys.executable
    command = SparkSubmit(master=CLUSTER, conf={"spark.pyspark.python": IMAGE})._command(
        "day.py", "day"
    )
    assert f"spark.pyspark.driver.python={sys.executable}" in command
    environment.delenv("PYSPARK_PYTHON")
    assert python_environment(CLUSTER)["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.process
def test_python_processes_of_spark_keep_docstrings_whatever_the_environment(environment):
    environment.setenv("PYTHONOPTIMIZE", "2")
    command = [sys.executable, "-c", "import pydoc; print(pydoc.__doc__ is not None)"]
    done = subprocess.run(
        command, env=python_environment("local[2]"), capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.spark
@pytest.mark.proof
def test_an_added_setting_reaches_spark(environment, tmp_path):
    program, log = tmp_path / "program.py", tmp_path / "spark.log"
    program.write_text(PROGRAM)
    submit = spark_submit_from_environment(
        None, ["spark.sql.files.maxPartitionBytes=1m", "spark.note=seven of nine"]
    )
    with submit.program_started(program, [], name="settings", log=log) as wait:
        assert wait(120) == 0, log.read_text()[-2000:]
    assert "SEEN 1m seven of nine" in log.read_text()
