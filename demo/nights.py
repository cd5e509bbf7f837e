"""Runs the demo's days like the nightly job: in a Dagster process, watched from outside."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from demo.killing import kill_tree
from demo.run_end import RunEnd
from jobs.process.process_guard import command_under_guard
from jobs.schema.records import DayRecord
from jobs.tables.records import run_records
from orchestration.dagster.home import dagster_home

GRACE = 30.0  # s, in which the run stops its Spark
LOOK_EVERY = 0.1  # s


def find_record(end: RunEnd, enrichment: str) -> DayRecord | None:
    """Return this run's record, if any; a retry by Dagster has the run's id and a number."""
    of_day = run_records.load(enrichment, end.day)
    return next(
        (record for record in reversed(of_day) if record.facts.run_id.startswith(end.run_id)),
        None,
    )


class Nights:
    def __init__(self, enrichment: str, environment: Mapping[str, str]) -> None:
        home = dagster_home()
        self._enrichment = enrichment
        self._environment = {**os.environ, "DAGSTER_HOME": str(home), **environment}
        self._outcomes = home / "demo_outcomes.jsonl"
        self.log = home / "demo.log"

    def run(
        self, days: Sequence[str], watch: Callable[[str, Mapping[str, Any]], bool]
    ) -> list[RunEnd]:
        """Run the days until a day fails, and report the current day's progress to `watch`.

        If `watch` returns True, kills Dagster, Spark and its workers with -9, as a power cut would.
        """
        self._outcomes.unlink(missing_ok=True)
        for day in days:
            # of an earlier run
            run_records.progress_file(self._enrichment, day).unlink(missing_ok=True)
        with self._started(days) as process:
            while process.poll() is None:
                day = days[min(len(self.ends()), len(days) - 1)]
                if watch(day, run_records.read_progress(self._enrichment, day)):
                    kill_tree(process.pid)
                time.sleep(LOOK_EVERY)
        return self.ends()

    @contextlib.contextmanager
    def _started(self, days: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            sys.executable,
            "-m",
            "demo.run_days",
            f"{self._enrichment}_nightly",
            *days,
        ]
        command += ["--outcomes", str(self._outcomes)]
        with self.log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                command_under_guard(command, grace=GRACE),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                process.terminate()
                process.wait()

    def ends(self) -> list[RunEnd]:
        lines = (
            self._outcomes.read_text(encoding="utf-8").splitlines()
            if self._outcomes.exists()
            else []
        )
        return [RunEnd.from_json(line) for line in lines]
