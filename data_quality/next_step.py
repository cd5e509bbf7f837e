"""What is to be done about a day that is held back, by what its checks found."""

from __future__ import annotations

from data_quality import catalogue
from data_quality.check import Cure
from jobs.schema import DayRecord, DeclaredFacts


def cure(record: DayRecord, declared: DeclaredFacts) -> Cure:
    """Of a day that is held back. declared: as it is now."""
    red = {verdict.check for verdict in record.verdicts if verdict.holds_back}
    cures = {spec.cure for spec in catalogue.checks(declared) if spec.name in red}
    if declared.ledger is None:
        return Cure.RUN_AGAIN
    if Cure.REPLAY in cures and record.dead_letters:
        return Cure.REPLAY
    return Cure.REFRESH if Cure.REFRESH in cures else Cure.RUN_AGAIN


def next_step(record: DayRecord) -> str:
    """For the reader of the day's report, with Dagster or without."""
    name, day = record.facts.declared.enrichment, record.facts.day
    again = f"run the day again, by the job {name}_nightly or `tidegate run {name} --day {day}`."
    match cure(record, record.facts.declared):
        case Cure.REPLAY:
            return (
                f"Mend the cause, then run the job {name}_replay for the day, or `tidegate replay {name} --day {day}`: "
                "it asks again for the dead letters and nothing else."
            )
        case Cure.REFRESH:
            return (
                "Mend the cause; the ledger keeps the answers: where some are wrong, ask anew for them by the job "
                f"refresh_answers or `tidegate refresh`; then {again}"
            )
        case Cure.RUN_AGAIN:
            return f"Mend the cause, then {again}"
