"""A Spark program that has run already: its records and last words are there when it is
waited for.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

from jobs.declare.enrichment import Enrichment
from jobs.process.spark_submit import SparkSubmit, WaitForEnd
from jobs.run.enrich_day import day_run_id
from jobs.schema.records import DayRecord
from jobs.storage import durable
from jobs.tables.records import run_records
from orchestration.dagster.resources import SparkProgram

# of a day and a run id: the record of a day that was written, the last event of one that was not,
# or None where the program ends before that day
Script = Callable[[str, str], DayRecord | dict[str, Any] | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptedSubmit(SparkSubmit):
    enrichment: Enrichment
    script: Script
    code: int = 0
    last_line: str = ""

    @contextlib.contextmanager
    def started(
        self, reference, *, days, run_id, log, options=(), leases=()
    ) -> Iterator[WaitForEnd]:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(self.last_line)
        for day in days:
            result = self.script(day, day_run_id(run_id, day) if "--in-turn" in options else run_id)
            if result is None:
                break
            event = result
            if isinstance(result, DayRecord):
                run_records.save(result)
                event = {"kind": "checked"}
            durable.replace(
                run_records.progress_file(self.enrichment.name, day),
                json.dumps({"day": day} | event).encode(),
            )
        yield lambda _seconds: self.code


class ScriptedSpark(SparkProgram):
    """The resource that starts such a program. Scripts cannot be fields of a resource: `submits`
    has them.
    """

    def submit(self) -> SparkSubmit:
        return submits[-1]


submits: list[ScriptedSubmit] = []  # of the test at work


def scripted(
    enrichment: Enrichment,
    script: Script,
    *,
    code: int = 0,
    last_line: str = "",
    wait: float = 30.0,
) -> ScriptedSpark:
    submits[:] = [
        ScriptedSubmit(enrichment=enrichment, script=script, code=code, last_line=last_line)
    ]
    return ScriptedSpark(wait=wait)
