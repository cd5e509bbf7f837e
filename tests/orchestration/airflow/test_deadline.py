"""The deadline of a day under Airflow's own scheduler, and the callback that its triggerer runs."""

import datetime as dt
import json
import time

import pytest

from tests.orchestration.airflow.test_real_scheduler import project, wait
from tests.support.airflow_home import AirflowHome, manifest_of

pytestmark = [pytest.mark.process, pytest.mark.proof]

# for Airflow to start and to make the run; publish_by is a whole minute
AHEAD = dt.timedelta(minutes=3)
OLD = "2026-01-10"
LATE_DAYS = """
import json

async def note(file, context):
    with open(file, "a") as late:
        print(json.dumps([context["dag_run"]["dag_id"], context["dag_run"]["partition_key"]]), file=late)
"""


def test_a_missed_deadline_is_reported_once_and_not_for_a_backfill(
    tmp_path,
):
    folder = project(tmp_path / "project", "06:30")
    noted = tmp_path / "late.jsonl"
    on_late = f"AsyncCallback('late_days.note', {{'file': {str(noted)!r}}})"
    manifest = manifest_of(folder)
    home = AirflowHome(tmp_path / "airflow", manifest, {}, arguments=f", on_late={on_late}")
    home.environment["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] = "False"
    home.airflow("pools", "set", "spark", "0", "no day gets its turn")
    dag_file = home.folder / "dags" / "enrichments.py"
    dag_file.write_text(f"from airflow.sdk import AsyncCallback\n{dag_file.read_text()}")
    (home.folder / "plugins" / "late_days.py").write_text(LATE_DAYS)
    publish_by = (dt.datetime.now(dt.UTC) + AHEAD + dt.timedelta(minutes=1)).replace(
        second=0, microsecond=0
    )
    yesterday = publish_by.date() - dt.timedelta(days=1)
    manifest["enrichments"][0] |= {
        "end": None,
        "publish_by": f"{publish_by:%H:%M}",
        "schedule": "0 0 * * *",
    }
    (home.folder / "manifest.json").write_text(json.dumps(manifest))
    home.airflow("dags", "reserialize")
    home.airflow(
        "backfill", "create", "--dag-id", "towns", "--from-date", OLD, "--to-date", f"{OLD}T23:59"
    )
    with home.standalone() as server:
        until = time.monotonic() + 600
        wait(until, server, noted.exists)
        wait(until, server, lambda: home.rows("select 1 from callback where state = 'success'"))
    runs = "select r.partition_key, r.state from dag_run r"
    assert {day for day, _ in home.rows(runs)} == {str(yesterday), OLD}
    with_deadline = (
        "select r.partition_key, d.missed, d.deadline_time from deadline d join dag_run r on r.id "
        "= d.dagrun_id"
    )
    assert home.rows(with_deadline) == [(str(yesterday), 1, f"{publish_by:%Y-%m-%d %H:%M:%S.%f}")]
    assert [json.loads(line) for line in noted.read_text().splitlines()] == [
        ["towns", str(yesterday)]
    ]
