"""`dead-letters`: lists a day's dead letters, also of a held-back day, which no table lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from jobs.commands.replay import held_back_letters, last_run
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.schema.columns import RUN_ID
from jobs.tables import dead_letters
from jobs.tables.records import run_records


@dataclass(frozen=True)
class DayLetters:
    """The dead letters of a run of a day.

    Attributes:
        run_id: The run.
        state: The run's state.
        rows: The letters.
    """

    run_id: str
    state: str
    rows: list[Mapping[str, Any]]


def find_dead_letters(enrichment: Enrichment, day: str) -> DayLetters:
    """Return the letters of the held-back or published run, which a replay would complete.

    Raises DeclarationError if the day has no run, or if the files of a held-back run are removed.
    """
    run_records.fetch(enrichment.name, enrichment.output.path)
    last = last_run(enrichment, day)
    if last is None:
        raise DeclarationError(
            f"{enrichment.name}: {day} was never run to its end: it has no dead letters. Run it."
        )
    if last.state == "held back":
        rows = [row for batch in held_back_letters(last) for row in batch.to_pylist()]
        if last.dead_letters and not rows:
            raise DeclarationError(
                f"{enrichment.name}: vacuum removed the files of {day}, with its "
                f"{last.dead_letters:,} dead letters. "
                "Run the day again."
            )
    else:
        found = dead_letters.of_day(enrichment.output.path, enrichment.input.partition, day)
        own = pc.equal(found[RUN_ID], last.facts.run_id) if found.num_rows else None
        rows = (found if own is None else found.filter(own)).to_pylist()
    return DayLetters(last.facts.run_id, last.state, rows)
