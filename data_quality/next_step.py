"""Chooses the next step for a held-back day by its failed checks."""

from data_quality import catalogue
from data_quality.check import Cure
from data_quality.checks.errors_tolerated import ErrorsTolerated
from data_quality.findings import share
from jobs.schema.records import DayRecord, DeclaredFacts


def cure(record: DayRecord, declared: DeclaredFacts) -> Cure:
    """Return the cure of a held-back day, by the record of its run and the current declaration."""
    red = {verdict.check for verdict in record.red}
    cures = {spec.cure for spec in catalogue.checks(declared) if spec.name in red}
    if declared.ledger is None:
        return Cure.RUN_AGAIN
    if lost_calls(record):
        return Cure.REFRESH_MARKS
    if Cure.REPLAY in cures and record.dead_letters and declared.can_be_replayed:
        return Cure.REPLAY
    return Cure.REFRESH if Cure.REFRESH in cures else Cure.RUN_AGAIN


def lost_calls(record: DayRecord) -> list[str]:
    """Return the lookups whose `unknown` rows alone hold the day back."""
    declared = record.facts.declared
    red = {verdict.check for verdict in record.red}
    figures = {lookup.name: lookup.outcomes for lookup in record.figures.lookups}
    return [
        lookup.name
        for lookup in declared.lookups
        if f"{lookup.name}__{ErrorsTolerated.name}" in red and lookup.kind != "jobs"
        if (outcomes := figures.get(lookup.name, {})).get("unknown")
        if share(outcomes["unknown"], lookup.rows_judged(outcomes) + record.facts.rows_kept)
        > declared.error_tolerance
    ]


def next_step(record: DayRecord) -> str:
    """Return sentences for the reader of the day's report, under any scheduler."""
    name, day = record.facts.declared.enrichment, record.facts.day
    again = (
        f"run the day again: `tidegate run {name} --day {day}`, the job {name}_nightly in Dagster, "
        "or clear the day's task in Airflow."
    )
    match cure(record, record.facts.declared):
        case Cure.REPLAY:
            return (
                f"Fix the cause, then run `tidegate replay {name} --day {day}`, or run the day in "
                f"the mode replay: by the job {name}_nightly in Dagster, by the DAG {name} in "
                "Airflow. It calls again only for the dead letters."
            )
        case Cure.REFRESH_MARKS:
            lookups = lost_calls(record)
            let_again = " and ".join(
                f"`tidegate refresh {lookup} --where \"stored.outcome = 'asked'\" --run`"
                for lookup in lookups
            )
            return (
                f"The answers to calls of {' and '.join(lookups)} are lost, and no run repeats "
                f"them. Once the service shows that they did not act, {let_again} "
                f"{'lets' if len(lookups) == 1 else 'let'} them be made again; then {again}"
            )
        case Cure.REFRESH:
            return (
                "Fix the cause. The ledger keeps wrong answers: refresh them with `tidegate "
                "refresh`, the job tidegate_refresh_answers in Dagster or a DAG in the mode "
                f"refresh in Airflow, then {again}"
            )
        case Cure.RUN_AGAIN:
            return f"Fix the cause, then {again}"
