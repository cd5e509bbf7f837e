"""What to do about a day that is not published, in sentences."""

import datetime as dt

from data_quality.next_step import Cure, cure
from jobs.errors import AccessRefused, BudgetExhausted, RunStopped
from jobs.process.day_events import NOT_STARTED
from jobs.schema import DayRecord
from orchestration.deadlines import next_start
from orchestration.declared import Declared

KILLED_RUN = "Nothing: the run is started once more by itself."
CURES = {
    AccessRefused.state: "Once the service grants access again",
    BudgetExhausted.state: "Once the budget allows it",
}


def run_again(declared: Declared) -> str:
    """How to have the day, as the end of a sentence. The button of the asset alone makes no summaries."""
    with_summaries = f" by the job {declared.job_name}, with its summaries" if declared.enrichment.summaries else ""
    return f"materialize the day again{with_summaries}; the days published before stay as they are."


def mend(declared: Declared, record: DayRecord) -> str:
    """The next step of a day that is held back."""
    match cure(record, declared.facts):
        case Cure.REPLAY:
            return (
                f"Open the report, mend the cause, then run the job {declared.name}_replay for the day: it asks again "
                "for the dead letters and nothing else; the days published before stay as they are."
            )
        case Cure.REFRESH:
            return (
                "Open the report, mend the cause; the ledger keeps the answers: where some are wrong have the job "
                f"refresh_answers, with do: true, ask anew for them; then {run_again(declared)}"
            )
        case Cure.RUN_AGAIN:
            return f"Open the report, mend the cause, then {run_again(declared)}"


def after(declared: Declared, day: str, state: str) -> str:
    """The next step of a day whose run wrote no files, by how that ended."""
    if state == NOT_STARTED:
        return f"Wait for that run, or cancel it; then {run_again(declared)}"
    if state != RunStopped.state:
        return f"{CURES.get(state, 'Once that is mended')}, {run_again(declared)}"
    start = next_start(declared, day, dt.datetime.now(dt.UTC))
    if start is None:
        return (
            f"Once the service answers again, {run_again(declared)} "
            "It is not started by itself: its deadline has passed, or it has none."
        )
    until = f"{declared.enrichment.publish_by} UTC"
    return f"Nothing: it is started again by itself about {start:%H:%M} UTC, and so on until {until}."
