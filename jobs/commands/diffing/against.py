"""`test --against`: runs a published day as it is declared now, from the ledger, for comparison."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from jobs.commands.diffing.day_version import DayVersion, find_published
from jobs.commands.diffing.diff import Difference, compare
from jobs.commands.lost_answers import explain_lost_answers
from jobs.declare.enrichment import Enrichment
from jobs.declare.published.outputs import Output
from jobs.errors import DeclarationError, TidegateError
from jobs.run.day import run_day
from jobs.run.engines.engine import LOCAL
from jobs.run.plan.options import RunOptions
from jobs.run.rows.local_rows import CURE
from jobs.schema.facts import Facts
from jobs.storage.locked_folders import temporary_folder

LOCAL_ONLY = "`tidegate test` has the local engine only."


@dataclass(frozen=True)
class Tested(Facts):
    """What a declaration would do to a published day, without a call."""

    held_back: str  # the first check that would hold it back, with its sentence; empty: none
    lost: str  # a sentence if rows would lose their answers; empty: none would
    difference: Difference  # from the published day to that of this declaration


def run_against(
    enrichment: Enrichment, day: str, checks: str, new_id: Callable[[], uuid.UUID] = uuid.uuid4
) -> Tested:
    """Run a published day by the local engine, with stored answers of any age and no call.

    Nothing is published, and the run leaves neither a file nor a record.

    Args:
        enrichment: The enrichment, as it is declared now.
        day: The published day.
        checks: The hook that judges the written files, module:function.
        new_id: Returns the id of the run.

    Raises:
        DeclarationError: There is no ledger, the day is not published, or the declaration does not
            fit its input or needs Spark.
    """
    if enrichment.ledger is None:
        raise DeclarationError(f"{enrichment.name} has no ledger: a test without calls needs one.")
    before = find_published(enrichment, day)
    run_id, rules = new_id().hex, RunOptions(may_call=False, ignore_ttl=True, has_record=False)
    with temporary_folder() as folder:
        output = Output(path=str(folder / "table"))
        beside = replace(enrichment, output=output, summaries=(), windows=())
        try:
            record = run_day(beside, day, run_id, rules=rules, checks=checks, engine=LOCAL)
        except TidegateError as error:
            error.args = (str(error).replace(CURE, LOCAL_ONLY), *error.args[1:])
            raise
        # without its id, which differs each time and leads to no record
        after = DayVersion(None, "", tuple(sorted(record.facts.published_files)), record)
        return Tested(
            next((f"{red.check}: {red.sentence}" for red in record.red), ""),
            explain_lost_answers(before.files, record),
            compare(enrichment, day, before, after),
        )
