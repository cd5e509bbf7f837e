"""What to do about a day that is not published, in sentences."""

import datetime as dt

from data_quality.check import Cure
from data_quality.next_step import cure
from jobs.declare.enrichment import Enrichment
from jobs.errors import AccessRefused, BudgetExhausted, RunStopped
from jobs.schema import DayRecord
from orchestration.common.deadlines import next_start
from orchestration.common.states import NOT_STARTED

KILLED_RUN = "Nothing: the run is started once more by itself."
CURES = {
    AccessRefused.state: "Once the service grants access again",
    BudgetExhausted.state: "Once the budget allows it",
}


def run_again(enrichment: Enrichment) -> str:
    """How to have the day, as the end of a sentence. The button of the asset alone makes nothing beside it."""
    beside = [name for name, made in (("windows", enrichment.windows), ("summaries", enrichment.summaries)) if made]
    with_them = f" by the job {enrichment.name}_nightly, with its {' and '.join(beside)}" if beside else ""
    return f"materialize the day again{with_them}; the days published before stay as they are."


def mend(enrichment: Enrichment, record: DayRecord) -> str:
    """The next step of a day that is held back."""
    match cure(record, enrichment.facts()):
        case Cure.REPLAY:
            return (
                f"Open the report, mend the cause, then run the job {enrichment.name}_replay for the day: it asks "
                "again for the dead letters and nothing else; the days published before stay as they are."
            )
        case Cure.REFRESH:
            return (
                "Open the report, mend the cause; the ledger keeps the answers: where some are wrong have the job "
                f"tidegate_refresh_answers, with do: true, ask anew for them; then {run_again(enrichment)}"
            )
        case Cure.RUN_AGAIN:
            return f"Open the report, mend the cause, then {run_again(enrichment)}"


def after(enrichment: Enrichment, day: str, state: str) -> str:
    """The next step of a day whose run wrote no files, by how that ended."""
    if state == NOT_STARTED:
        return f"Wait for that run, or cancel it; then {run_again(enrichment)}"
    if state != RunStopped.state:
        return f"{CURES.get(state, 'Once that is mended')}, {run_again(enrichment)}"
    start = next_start(enrichment, day, dt.datetime.now(dt.UTC))
    if start is None:
        return (
            f"Once the service answers again, {run_again(enrichment)} "
            "It is not started by itself: its deadline has passed, or it has none."
        )
    until = f"{enrichment.publish_by} UTC"
    return f"Nothing: it is started again by itself about {start:%H:%M} UTC, and so on until {until}."
