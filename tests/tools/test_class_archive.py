"""The archive of Spark's classes: a help, never a hindrance."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.process import spark_submit
from jobs.process.spark_submit import PROGRAM, SparkSubmit

JAVA = (
    str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    if "JAVA_HOME" in os.environ
    else shutil.which("java")
)


def command():
    return " ".join(SparkSubmit()._command(PROGRAM, "module:name"))


def test_a_spark_program_uses_the_class_archive(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_submit, "CLASS_ARCHIVE", tmp_path / "spark.jsa")
    assert "SharedArchiveFile" not in command()
    spark_submit.CLASS_ARCHIVE.touch()  # a Java that could make none
    assert "SharedArchiveFile" not in command()
    spark_submit.CLASS_ARCHIVE.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={spark_submit.CLASS_ARCHIVE}" in command()


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
@pytest.mark.process
def test_java_starts_silently_with_a_missing_torn_or_foreign_class_archive(
    monkeypatch, tmp_path, content
):
    archive = tmp_path / "spark.jsa"
    archive.write_bytes(b"something")
    monkeypatch.setattr(spark_submit, "CLASS_ARCHIVE", archive)
    options = shlex.split(spark_submit.archived_classes())
    archive.unlink() if content is None else archive.write_bytes(content)
    ended = subprocess.run(
        [JAVA, *options, "-version"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0
    assert ended.stdout == ""
    assert "version" in ended.stderr.splitlines()[0]


@pytest.mark.proof
@pytest.mark.process
def test_spark_loads_classes_from_the_archive_beside_the_python(tmp_path):
    if not spark_submit.archived_classes():
        pytest.skip("none was made here: `make test` does")
    log = tmp_path / "classes"
    options = f'"-XX:SharedArchiveFile={spark_submit.CLASS_ARCHIVE}" -Xlog:class+load:file={log}'
    program = spark_submit.find_script()
    # it looks for PySpark in the Python that the environment names, as `make` does, else in any
    environment = spark_submit.python_environment("local[1]") | {"SPARK_SUBMIT_OPTS": options}
    subprocess.run([program, "--version"], env=environment, capture_output=True, check=True)
    mapped = [line for line in log.read_text().splitlines() if "shared objects file (top)" in line]
    assert any(" org.apache.spark.deploy.SparkSubmit " in line for line in mapped)
