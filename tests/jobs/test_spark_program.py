"""The Spark program is started where it can be, and what is missing is said in a sentence."""

import pytest

from enrichments.flights import flights
from jobs.commands.plan import plan
from jobs.errors import SparkFailed
from jobs.spark_program import SparkSubmit, ended, java_lacking

DAY = "2013-01-10"


@pytest.mark.parametrize(
    ("home", "said"),
    [
        (None, "Spark needs Java 17 or newer: none is on PATH, and JAVA_HOME is not set. Nothing was called."),
        ("/no/java", "Spark needs Java 17 or newer: JAVA_HOME is /no/java, which has no bin/java. Nothing was called."),
    ],
)
def test_a_machine_without_java_is_told_so_by_runs_and_by_plans(tmp_path, monkeypatch, home, said):
    assert java_lacking() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    log = tmp_path / "spark.log"
    code = SparkSubmit().run("enrichments.flights:flights", days=[DAY], run_id="r1", log=log)
    how = ended(code, None, "", log)
    assert how.reason == said
    assert not how.crashed  # tried again by itself it would lack Java again
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)  # another test's may be there
    with pytest.raises(SparkFailed) as failed:
        plan(flights, [DAY])
    assert str(failed.value) == said
