"""Chooses which days of a Dagster run the pipeline runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from data_quality.next_step import next_step
from jobs.declare.enrichment import Enrichment
from jobs.errors import TidegateError
from jobs.schema.records import DayRecord
from jobs.tables.records import run_records
from orchestration.common.modes import OTHERS, Mode
from orchestration.common.states import PUBLISHED
from orchestration.dagster.assets.days_tally import Red
from orchestration.dagster.declared import Declared


@dataclass(frozen=True)
class ChosenDays:
    """The days of a run, divided by what the run does with them.

    Attributes:
        to_run: Days for the pipeline.
        published_before: Days that an earlier try of the run published.
        unchanged: Records of published days, which have no dead letters to replay.
        refused: Days that cannot be replayed or remapped, and why.
    """

    to_run: list[str] = field(default_factory=list)
    published_before: list[str] = field(default_factory=list)
    unchanged: dict[str, DayRecord] = field(default_factory=dict)
    refused: dict[str, Red] = field(default_factory=dict)


def choose_days(declared: Declared, mode: Mode, days: Sequence[str], tries: set[str]) -> ChosenDays:
    """Divides the days of a run by what the run does with them.

    Args:
        declared: Their enrichment.
        mode: The mode of the run.
        days: All days of the run.
        tries: Ids of the run and of the runs that it repeats. A single day is always run again.
    """
    chosen = ChosenDays()
    for day in days:
        try:
            if len(days) > 1 and _is_published_by(tries, declared.name, day):
                chosen.published_before.append(day)
            elif mode in OTHERS:
                _choose_by_answers(chosen, declared.enrichment, day, mode)
            else:
                chosen.to_run.append(day)
        except TidegateError as error:
            chosen.refused[day] = Red(str(error), f"Run the job {declared.job_name} for the day.")
    return chosen


def _is_published_by(tries: set[str], enrichment: str, day: str) -> bool:
    return any(
        record.state == PUBLISHED and record.facts.run_id.startswith(tuple(tries))
        for record in run_records.load(enrichment, day)
    )


def _choose_by_answers(chosen: ChosenDays, enrichment: Enrichment, day: str, mode: Mode) -> None:
    """Chooses a day that is replayed or remapped. Raises TidegateError if it cannot be replayed."""
    from jobs.commands.replaying.replay import last_run, prepare

    if enrichment.ledger is None:
        chosen.refused[day] = Red(
            "the enrichment keeps no ledger: every row would be called.", "Run the nightly job."
        )
        return
    has_letters = mode is Mode.remap or prepare(enrichment, day)
    record = None if has_letters else last_run(enrichment, day)
    if record is None:
        chosen.to_run.append(day)
    elif record.state == PUBLISHED:
        chosen.unchanged[day] = record
    else:
        reason = f"the last run was held back, and not for its dead letters: {record.reason}"
        chosen.refused[day] = Red(reason, next_step(record))
