"""The Spark program as a resource: started through Dagster Pipes with spark-submit, and never left behind."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from jobs.process.process_guard import die_with_parent
from jobs.process.spark_submit import ProgramResult, SparkSubmit, ended, spark_submit_from_environment
from jobs.schema import DayRecord
from jobs.tables.leases import Lease
from orchestration.messages import WholeLineReader

HEAR_EVERY = 0.25  # s; between two looks at what the program of several days says


class SparkProgram(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs `jobs/run/enrich_day.py` for one day with spark-submit, in a session of its own under a guard.

    master, conf: as spark-submit takes them; java_options: for the driver; environment: for driver and executors, on
    top of ours. checks: the hook that judges the written files, module:function. grace: s between SIGTERM and SIGKILL.
    tell_every: s between two words about a run that goes on.

    On a cancel, and whatever kills this process, Spark is ended; nothing of the day is published by then.
    """

    master: str = "local[2]"
    conf: dict[str, str] = {}  # noqa: RUF012  # a field of a pydantic model, copied for each instance
    java_options: str = ""
    checks: str = "data_quality.day:check"
    environment: dict[str, str] = {}  # noqa: RUF012
    grace: float = 10.0
    tell_every: float = 300.0

    def run(
        self,
        context: dg.OpExecutionContext,
        reference: str,
        *,
        day: str,
        run_id: str,
        log: Path,
        options: Sequence[str],
        lease: Lease,
        while_running: Callable[[], None],
    ) -> ProgramResult:
        """Enrich and check the day; Spark's output goes to the file `log`.

        options: further ones of the program. while_running is called every tell_every s.
        """
        with self._session(context) as session:
            code = self._submit(self.tell_every).run(
                reference,
                days=[day],
                run_id=run_id,
                log=log,
                options=(*self._hooks, *options),
                environment=self.environment | dict(session.get_bootstrap_env_vars()),
                leases=[lease],
                while_running=while_running,
            )
        record, reason, state, progress = _reported(session.get_custom_messages())
        return replace(ended(code, record, reason, log), state=state, progress=progress)

    def run_days(
        self,
        context: dg.OpExecutionContext,
        reference: str,
        *,
        days: Sequence[str],
        run_id: str,
        log: Path,
        leases: Sequence[Lease],
        hear: Callable[[Mapping[str, Any]], None],
        while_running: Callable[[], None],
    ) -> ProgramResult:
        """Enrich and check the days, one after the other, in one Spark application.

        hear: gets what the program says of each day, in order, while it runs; a day begins when the one before is
        published or held back. while_running is called every tell_every s.
        """
        heard = 0
        tell_at = time.monotonic() + self.tell_every

        def listen(session: dg.PipesSession) -> None:
            nonlocal heard, tell_at
            for message in session.get_custom_messages()[heard:]:
                heard += 1
                hear(message)
            if time.monotonic() >= tell_at:
                tell_at += self.tell_every
                while_running()

        with self._session(context) as session:
            code = self._submit(HEAR_EVERY).run(
                reference,
                days=days,
                run_id=run_id,
                log=log,
                options=(*self._hooks, "--in-turn"),
                environment=self.environment | dict(session.get_bootstrap_env_vars()),
                leases=leases,
                while_running=lambda: listen(session),
            )
        listen(session)
        return ended(code, None, "", log)

    @property
    def _hooks(self) -> tuple[str, ...]:
        return "--checks", self.checks, "--reporter", "orchestration.pipes:reporter"

    def _submit(self, tell_every: float) -> SparkSubmit:
        return SparkSubmit(
            master=self.master,
            conf=self.conf,
            java_options=self.java_options,
            grace=self.grace,
            tell_every=tell_every,
        )

    @contextmanager
    def _session(self, context: dg.OpExecutionContext) -> Iterator[dg.PipesSession]:
        if multiprocessing.parent_process() is not None:
            die_with_parent()  # a step process whose run worker is killed ends too, and takes Spark with it
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesEnvContextInjector(),
            message_reader=WholeLineReader(),
        ) as session:
            yield session


def _reported(messages: object) -> tuple[DayRecord | None, str, str, str]:
    """What the program sent: the record of a day that was written; else the reason for stopping, the state, and how far
    it came.
    """
    record, reason, state, progress = None, "", "failed", ""
    for message in messages if isinstance(messages, tuple) else ():
        match message:
            case {"kind": "checked", "record": values}:
                record = DayRecord.from_dict(values)
            case {"kind": "stopped" | "failed", "reason": reason, **rest}:
                state, progress = str(rest.get("state", state)), str(rest.get("progress", ""))
    return record, reason, state, progress


def spark_program(checks: str = "data_quality.day:check") -> SparkProgram:
    """The Spark program as the environment wants it: TIDEGATE_SPARK_MASTER, _DRIVER_MEMORY, _JAVA_OPTIONS."""
    wanted = spark_submit_from_environment()
    return SparkProgram(master=wanted.master, conf=dict(wanted.conf), java_options=wanted.java_options, checks=checks)
