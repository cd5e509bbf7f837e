"""A day stopped in the middle, in the browser: by the person who looks at it, and by a service that
stops answering.
"""

import time
from pathlib import Path

import pytest

from demo.weather_service import running
from tests.orchestration.test_hard_stops import in_the_middle, processes_of_spark, starts_of_spark
from tests.support.free_ports import free_port
from tests.support.pages import keep, materialize, shows, wait_for, web_page

pytestmark = pytest.mark.ui

CANCELLED, STOPPED = "2013-01-10", "2013-01-11"
PORT = free_port()
KEYS = 535  # that the weather of a day has, or two more
# s from the click to the service's last call; left alone, the day would go on calling for twice
# that
WITHIN = 10.0


@pytest.fixture(scope="module")
def address(dagster_project):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEATHER_URL", f"http://127.0.0.1:{PORT}")
        with web_page("orchestration.dagster.web.ui", dagster_project.root) as address:
            yield address


def slow_service(project, scale: float):
    """So many times slower than in its own time, so that a day is long enough for a person at its
    page.
    """
    folder = project.root / "data" / "demo"
    return running(folder, folder / "slow_calls.jsonl", port=PORT, scale=scale)


def asked(page, project, day: str) -> str:
    """Asks for the day on the asset's page; the id of its run."""
    before = {run.run_id for run in project.instance.get_runs()}
    page.goto("/assets/flights_enriched")
    materialize(page, day)
    wait_for(lambda: len(project.instance.get_runs()) > len(before))
    (run,) = (run for run in project.instance.get_runs() if run.run_id not in before)
    return run.run_id


def test_a_run_cancelled_in_the_browser_stops_its_calls_within_seconds_and_leaves_no_process(
    page, dagster_project
):
    with slow_service(dagster_project, scale=8) as service:
        run_id = asked(page, dagster_project, CANCELLED)
        page.goto(f"/runs/{run_id}")
        wait_for(lambda: in_the_middle(CANCELLED))
        shows(page, " in flight, p50 ")  # progress, in the log of the run
        (started,) = starts_of_spark(dagster_project.root)
        page.get_by_role("button", name="Terminate").click()
        shows(page, "1 run will be terminated")
        page.get_by_role("button", name="Terminate 1 run").click()
        clicked = time.time()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in vars(started).values()))
        gone = time.time()
        assert processes_of_spark(dagster_project.root) == []
        calls = service.calls()
    last = max(call.t_start for call in calls)
    print(
        f"last call {last - clicked:.1f} s, processes gone {gone - clicked:.1f} s after the click"
    )
    assert len(calls) < KEYS  # it was in the middle
    assert last - clicked < WITHIN

    shows(page, "Canceled", "To publish the day, materialize the day again")
    keep(page, "a_run_cancelled")
    page.goto("/assets/flights_enriched?view=events")
    page.get_by_text(CANCELLED).first.click()
    shows(
        page,
        "Not published (cancelled): somebody cancelled the run",
        "nothing: no day is published yet",
    )
    assert dagster_project.observed(run_id)[-1]["state"] == "cancelled"


def test_the_page_of_a_day_stopped_by_an_outage_names_service_time_what_readers_see_and_cure(
    page, dagster_project
):
    with slow_service(dagster_project, scale=4) as service:
        run_id = asked(page, dagster_project, STOPPED)
        wait_for(lambda: in_the_middle(STOPPED))
        service.kill()
        killed = time.strftime("%H:%M", time.gmtime())
        wait_for(lambda: dagster_project.instance.get_run_by_id(run_id).is_finished)
        page.goto(f"/runs/{run_id}")
        shows(page, "Failure", "Not published: weather_api at ")
        keep(page, "a_run_stopped_by_an_outage")
        page.goto("/assets/flights_enriched?view=events")
        page.get_by_text(STOPPED).first.click()
        shows(
            page,
            (
                f"Not published (stopped: service): weather_api at 127.0.0.1:{PORT} stopped "
                f"answering at {killed}"
            ),
        )
        shows(
            page,
            "nothing: no day is published yet",
            "Once the service answers again, materialize the day again",
        )
        keep(page, "a_day_stopped_by_an_outage")
        page.goto(f"/assets/flights_enriched?view=partitions&partition={STOPPED}")
        shows(page, "failed, and did not materialize this asset")

        before = service.calls()
        service.start()
        run_id = asked(page, dagster_project, STOPPED)
        wait_for(lambda: dagster_project.instance.get_run_by_id(run_id).is_finished)
        page.goto(f"/assets/flights_enriched?view=partitions&partition={STOPPED}")
        shows(page, "Latest materialization", f"{STOPPED}, version 0, complete")
        after = service.calls()[len(before) :]
    assert 0 < len(after) < KEYS
    assert {call.key for call in after} & {
        call.key for call in before if call.outcome == "ok"
    } == set()
