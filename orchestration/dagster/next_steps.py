"""Sentences that say what to do about a day that is not published."""

import datetime as dt

from jobs.errors import RunStopped
from jobs.process.day_events import FAILED, ONCE
from orchestration.common.deadlines import local_time, next_start
from orchestration.common.states import NOT_STARTED, WAITING
from orchestration.dagster.declared import Declared

KILLED_RUN = "Nothing: the run is restarted automatically, once."


def run_again(declared: Declared) -> str:
    """Return how to run the day again, as the end of a sentence.

    It names the job if there are windows or summaries, because the asset alone makes none.
    """
    made = {"windows": declared.enrichment.windows, "summaries": declared.enrichment.summaries}
    beside = " and ".join(name for name in made if made[name])
    with_them = f" by the job {declared.job_name}, with its {beside}" if beside else ""
    return f"materialize the day again{with_them}; published days stay as they are."


def step_after(declared: Declared, day: str, state: str) -> str:
    """Return what to do about a day whose run ended in this state, in sentences."""
    if state == NOT_STARTED:
        return f"Wait for that run, or cancel it; then {run_again(declared)}"
    if state == WAITING:
        return "Nothing: the vendor is asked every minute; once its jobs are over, the day goes on."
    if state != RunStopped.state:
        return f"{ONCE.get(state, ONCE[FAILED])}, {run_again(declared)}"
    enrichment = declared.enrichment
    start = next_start(enrichment, day, dt.datetime.now(dt.UTC))
    if start is None:
        return (
            f"{ONCE[state]}, {run_again(declared)} "
            "It is not restarted automatically: its deadline has passed, or it has none."
        )
    until = f"{enrichment.publish_by} {enrichment.zone}"
    return (
        f"Nothing: it is restarted automatically about {local_time(enrichment, start)}, and "
        f"again until {until}."
    )
