"""A day whose vendor has open jobs, in a real Airflow: no process runs while the task is deferred,
the triggerer resumes it, and Spark starts once, for the day that is published.
"""

import contextlib
import json
import shutil
import time

import psutil
import pytest
from deltalake import DeltaTable

from tests.jobs.vendor_jobs.conftest import Reviews
from tests.support.airflow_home import AirflowHome, manifest_of
from tests.support.scripted_service import ScriptedService
from tests.support.vendor import PRICE, Vendor

pytestmark = [pytest.mark.process, pytest.mark.proof]

DAY = "2013-01-10"
TEXTS = [f"text {number}" for number in range(25)]
PATIENCE = 600.0  # s, for a step
POLL_EVERY = 8.0  # s
# stands for Java: notes each start
JAVA = """#!/bin/sh
echo "$*" >> {log}
exec {java} "$@"
"""
SUBMITTING = "org.apache.spark.deploy.SparkSubmit"
LAUNCHER = "org.apache.spark.launcher.Main"  # prints the command of the other


class Night:
    """A day of `reviews` in Airflow: what starts it, and what is seen of it."""

    def __init__(self, folder, vendor, url):
        self.vendor, self.project, self._java_log = vendor, folder / "project", folder / "java.log"
        self._prepare()
        environment = {"VENDOR_URL": url, "JAVA_HOME": str(self._java_home(folder / "java"))}
        self.home = AirflowHome(folder / "airflow", manifest_of(self.project), environment)
        self.home.airflow("pools", "set", "spark", "1", "Sparks at once")

    def _prepare(self):
        self.project.mkdir()
        with contextlib.chdir(self.project), pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(self.project))
            reviews = Reviews(self.vendor)
            reviews.declare(poll_every=POLL_EVERY)
            reviews.write_input(DAY, TEXTS)

    def _java_home(self, folder):
        script = folder / "bin" / "java"
        script.parent.mkdir(parents=True)
        script.write_text(JAVA.format(log=self._java_log, java=shutil.which("java")))
        script.chmod(0o755)
        return folder

    def start(self, server):
        self.wait(server, lambda: self.home.rows("select 1 from dag where not is_stale"))
        self.home.airflow("dags", "unpause", "reviews")
        self.home.airflow("dags", "trigger", "reviews", "--conf", json.dumps({"day": DAY}))

    def wait(self, server, condition):
        until = time.monotonic() + PATIENCE
        while not condition():
            assert server.poll() is None, "Airflow has ended"
            assert time.monotonic() < until, "it did not come true"
            time.sleep(0.2)

    @property
    def task(self):
        """Its state."""
        found = self.home.rows("select state from task_instance where dag_id = 'reviews'")
        return found[0][0] if found else ""

    @property
    def sparks(self):
        """How often Spark was started."""
        lines = self._java_log.read_text().splitlines() if self._java_log.exists() else []
        return sum(SUBMITTING in line and LAUNCHER not in line for line in lines)

    def processes(self):
        """The commands and Javas of the project that are running."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd() == str(self.project):
                    found.append(process.cmdline())
        return found

    def looks(self):
        """How often the vendor was asked for the state of a job."""
        return sum(method == "GET" and path == "/jobs/job-1" for method, path in self.vendor.log)


@pytest.fixture
def night(tmp_path):
    service = ScriptedService()
    service.start()
    yield Night(tmp_path, Vendor(service, looks=10_000), service.url)
    service.stop()


def test_airflow_defers_a_day_with_open_jobs_and_resumes_it_until_it_is_published(night):
    with night.home.standalone() as server:
        night.start(server)
        night.wait(server, lambda: night.task == "deferred" and not night.processes())
        assert night.sparks == 0
        assert len(night.vendor.jobs) == 3
        looks = night.looks()
        # the triggerer resumes the task, which waits again
        night.wait(server, lambda: night.looks() > looks and night.task == "deferred")
        for job in night.vendor.jobs.values():
            job.looks = 0
        night.wait(server, lambda: night.task not in ("deferred", "scheduled", "queued", "running"))
        assert night.task == "success"
    assert night.sparks == 1
    assert set(night.vendor.submits.values()) == {1}
    table = DeltaTable(str(night.project / "data/published/reviews")).to_pyarrow_table()
    labels = dict(zip(table["review"].to_pylist(), table["label"].to_pylist(), strict=True))
    assert labels == {text: f"label of {text}" for text in TEXTS}
    (event,) = night.home.rows(
        "select e.extra from asset_event e join asset a on a.id = e.asset_id where a.name = 'reviews'"
    )
    assert json.loads(event[0])["cost"] == {"USD": float(night.vendor.invoice)}
    assert night.vendor.invoice == PRICE * len(TEXTS)
