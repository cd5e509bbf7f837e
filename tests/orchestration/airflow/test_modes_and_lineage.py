"""Airflow with real days: replay and remap by a run's conf, and its lineage."""

import json
import threading

import pytest

from tests.orchestration.airflow.test_real_scheduler import DAYS, Weather, project, rows_of
from tests.support.airflow_home import AirflowHome, manifest_of
from tests.support.sources import ROOT

pytestmark = [pytest.mark.process, pytest.mark.proof]

DAY = DAYS[0]
FAILING = "town-0"


@pytest.fixture
def weather():
    with Weather() as service:
        service.slow.clear()
        service.status = lambda town: 500 if town == FAILING else 200
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


def test_a_replay_calls_only_dead_letters_a_remap_makes_no_call_and_openlineage_gets_the_tables(
    tmp_path, weather
):
    folder = project(tmp_path / "project", "06:30")
    environment = {"WEATHER_URL": f"http://127.0.0.1:{weather.server_port}"}
    manifest = manifest_of(folder)
    manifest["enrichments"][0]["end"] = None  # Airflow runs nothing after it
    home = AirflowHome(tmp_path / "airflow", manifest, environment)
    home.airflow("pools", "set", "spark", "1", "Sparks at once")
    lineage = tmp_path / "lineage.jsonl"
    home.environment["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(
        {"type": "file", "log_file_path": str(lineage), "append": True}
    )

    def ran(*modes: str) -> list[dict]:
        runs = [("towns", {"day": DAY, "mode": mode}) for mode in modes]
        script = ROOT / "tests" / "support" / "airflow_days.py"
        printed = home.python(
            script, str(home.folder / "dags" / "enrichments.py"), json.dumps(runs), "[]"
        )
        lines = [
            line.removeprefix("RESULT ")
            for line in printed.splitlines()
            if line.startswith("RESULT ")
        ]
        return [json.loads(line) for line in lines[: len(modes)]]

    (nightly,) = ran("nightly")
    assert (nightly["state"], nightly["events"]["towns__dead_letters"]) == (
        "success",
        [DAY, {"rows": 1}],
    )
    weather.status = lambda _town: 200
    calls = sum(weather.requests.values())
    replayed, again, remapped = ran("replay", "replay", "remap")
    assert [result["state"] for result in (replayed, again, remapped)] == [
        "success",
        "skipped",
        "success",
    ]
    assert replayed["events"]["towns"][1]["calls"] == 1
    assert remapped["events"]["towns"][1]["calls"] == 0
    assert sum(weather.requests.values()) == calls + 1
    assert weather.calls(DAY)[FAILING] == 1
    assert len(rows_of(folder, "towns")) == 10

    events = [json.loads(line) for line in lineage.read_text().splitlines()]
    (complete, *_) = [
        event
        for event in events
        if event["eventType"] == "COMPLETE" and event["job"]["name"] == "towns.day"
    ]
    assert [table["name"] for table in complete["inputs"]] == [str(folder / "data/raw/towns")]
    published = folder / "data/published"
    assert {table["name"] for table in complete["outputs"]} == {
        str(published / name) for name in ("towns", "towns__dead_letters", "by_town")
    }
    assert {table["namespace"] for table in complete["outputs"]} == {"file"}
