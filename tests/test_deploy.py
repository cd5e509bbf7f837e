"""What docs/kubernetes.md deploys: the files of deploy/, and the settings that a run takes from
them.
"""

import subprocess

import pytest
import yaml

from jobs.process.spark_conf import SPARK_CONF, refuse_own_settings, settings_from_environment
from tests.support.documents import all_blocks
from tests.support.sources import ROOT

DEPLOY = ROOT / "deploy"


def test_the_kubernetes_page_prints_the_files_that_are_deployed():
    printed = {code for _, code in all_blocks("docs/kubernetes.md")}
    assert printed == {path.read_text() for path in DEPLOY.iterdir()}


def container():
    *_, job = yaml.safe_load_all((DEPLOY / "nightly.yaml").read_text())
    (found,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def test_a_run_takes_the_settings_of_the_nightly_job(monkeypatch):
    variables = {item["name"]: item.get("value") for item in container()["env"]}
    monkeypatch.setenv(SPARK_CONF, variables[SPARK_CONF])
    settings = settings_from_environment()
    refuse_own_settings(settings, variables["TIDEGATE_SPARK_MASTER"])
    assert settings["spark.kubernetes.container.image"] == container()["image"]


def test_driver_and_executors_take_a_secret_from_the_same_key():
    secrets = {
        item["name"]: "{name}:{key}".format(**item["valueFrom"]["secretKeyRef"])
        for item in container()["env"] if "secretKeyRef" in item.get("valueFrom", {})
    }  # fmt: skip
    settings = dict(word.partition("=")[::2] for item in container()["env"] if item["name"] == SPARK_CONF
                    for word in item["value"].split())  # fmt: skip
    assert settings["spark.kubernetes.executor.secretKeyRef.CREDIT_URL"] == secrets["CREDIT_URL"]


@pytest.mark.process
def test_the_entrypoint_passes_the_words_of_a_command_unchanged():
    words = ["sh", "-c", 'echo "$1|$2"', "sh", "two words", ""]
    done = subprocess.run(
        ["bash", DEPLOY / "entrypoint.sh", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == "two words|\n"


@pytest.mark.process
def test_the_entrypoint_starts_an_executor_with_the_command_of_spark(tmp_path):
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin", "SPARK_HOME": "/spark",
        "SPARK_CONF_DIR": "/conf", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_DRIVER_URL": "spark://d:1",
        "SPARK_EXECUTOR_ID": "7", "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9", "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "orders-exec-7", "SPARK_JAVA_OPT_10": "-Dlast=2",
        "SPARK_JAVA_OPT_2": "-Dfirst=two words",
    }  # fmt: skip
    command = ["bash", DEPLOY / "entrypoint.sh", "executor"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert done.stdout.splitlines() == [
        "-Dfirst=two words", "-Dlast=2", "-Xms1g", "-Xmx1g", "-cp", "/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", "--driver-url",
        "spark://d:1", "--executor-id", "7", "--cores", "2", "--app-id", "app", "--hostname",
        "10.0.0.9", "--resourceProfileId", "0", "--podName", "orders-exec-7",
    ]  # fmt: skip
