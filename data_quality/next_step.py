"""What is to be done about a day that is held back, by what its checks found."""

from __future__ import annotations

from enum import Enum

from data_quality import catalogue
from jobs.schema import DayRecord, DeclaredFacts


class Cure(Enum):
    """How the day comes to other rows than it has, once the cause is mended."""

    RUN_AGAIN = "run again"
    REPLAY = "replay"  # a run takes a stored answer that does not fit as it is
    REFRESH = "refresh"  # as they are stored, the day would have the same answers


def cure(record: DayRecord, declared: DeclaredFacts) -> Cure:
    """Of a day that is held back. declared: as it is now."""
    red = {verdict.check for verdict in record.verdicts if verdict.holds_back}
    unfit = {f"{lookup.name}__errors_tolerated" for lookup in declared.lookups}
    if declared.ledger is not None and record.dead_letters and unfit & red:
        return Cure.REPLAY
    judge_answers = {f"{lookup.name}__answers_in_range" for lookup in declared.lookups}
    judge_answers |= {name for name, _ in catalogue.further(declared)}
    return Cure.REFRESH if declared.ledger is not None and judge_answers & red else Cure.RUN_AGAIN


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
