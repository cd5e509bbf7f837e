"""The Spark program as a resource: started through Dagster Pipes with spark-submit, and never left behind."""

import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from jobs.schema import DayRecord
from orchestration.guard import command_under_guard, die_with_parent
from orchestration.messages import WholeLineReader

HERE = Path(__file__).resolve().parent
LOGGING = HERE / "log4j2.properties"
PROGRAM = HERE.parent / "jobs" / "enrich_day.py"
WRONG, STOPPED = 2, 3  # exit statuses of the program: wrong declaration or input; a service is down or refuses us
BUG = 1


@dataclass(frozen=True)
class Ended:
    """How one run of the Spark program ended. record is None unless the day's files were written and checked."""

    code: int
    record: DayRecord | None
    reason: str  # one sentence; empty when all went well

    @property
    def crashed(self) -> bool:
        """True when the program was killed or broke off, so that the same again may go well."""
        return self.record is None and self.code not in (WRONG, STOPPED, BUG)


class SparkProgram(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs `jobs/enrich_day.py` for one day with spark-submit, in a session of its own under a guard (`guard.py`).

    master, conf: as spark-submit takes them; java_options: for the driver; environment: for driver and executors, on
    top of ours. checks: the hook that judges the written files, module:function. grace: s between SIGTERM and SIGKILL.

    On a cancel, and whatever kills this process, Spark is ended; nothing of the day is published by then.
    """

    master: str = "local[2]"
    conf: dict[str, str] = {}  # noqa: RUF012  # a field of a pydantic model, copied for each instance
    java_options: str = ""
    checks: str = "data_quality.day:check"
    environment: dict[str, str] = {}  # noqa: RUF012
    grace: float = 10.0

    def run(self, context: dg.AssetExecutionContext, reference: str, *, day: str, run_id: str, log: Path) -> Ended:
        """Enrich and check the day; Spark's output goes to the file `log`."""
        if multiprocessing.parent_process() is not None:
            die_with_parent()  # a step process whose run worker is killed ends too, and takes Spark with it
        log.parent.mkdir(parents=True, exist_ok=True)
        with dg.open_pipes_session(
            context=context.op_execution_context,  # with the other one Dagster calls what it has deprecated itself
            context_injector=dg.PipesEnvContextInjector(),
            message_reader=WholeLineReader(),
        ) as session:
            environment = self._environment() | dict(session.get_bootstrap_env_vars())
            command = self._command(reference, day, run_id)
            with log.open("wb") as output:
                code = _run_to_the_end(command_under_guard(command, grace=self.grace), environment, output.fileno())
        return _ended(code, session.get_custom_messages(), log)

    def _command(self, reference: str, day: str, run_id: str) -> list[str]:
        spark_submit = Path(sys.executable).parent / "spark-submit"
        conf = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOGGING} {self.java_options}".strip(),
        } | self.conf
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return [
            *(str(spark_submit), "--master", self.master, "--name", f"{reference} {day}", *settings, str(PROGRAM)),
            *("--enrichment", reference, "--day", day, "--run-id", run_id),
            *("--checks", self.checks, "--reporter", "orchestration.pipes:reporter"),
        ]

    def _environment(self) -> dict[str, str]:
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return dict(os.environ) | python | self.environment


def _run_to_the_end(command: list[str], environment: dict[str, str], output: int) -> int:
    process = subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        return process.wait()
    except BaseException:  # a cancel from Dagster is one
        process.terminate()
        process.wait()  # the guard gives Spark its grace, then kills it
        raise


def _ended(code: int, messages: object, log: Path) -> Ended:
    record, reason = None, ""
    for message in messages if isinstance(messages, tuple) else ():
        match message:
            case {"kind": "checked", "record": values}:
                record = DayRecord.from_dict(values)
            case {"kind": "stopped" | "failed", "reason": reason}:
                pass
    if code == 0 and record is not None:
        return Ended(code, record, "")
    if not reason:
        reason = (
            _last_line(log)
            if code in (WRONG, STOPPED, BUG)
            else f"Spark ended with status {code} before the day was done."
        )
    return Ended(code, None, reason)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "The Spark program ended without a word."


def spark_program(checks: str = "data_quality.day:check") -> SparkProgram:
    """The Spark program as the environment wants it: TIDEGATE_SPARK_MASTER, _DRIVER_MEMORY, _JAVA_OPTIONS."""
    return SparkProgram(
        master=os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"),
        conf={"spark.driver.memory": os.environ.get("TIDEGATE_SPARK_DRIVER_MEMORY", "1g")},
        java_options=os.environ.get("TIDEGATE_SPARK_JAVA_OPTIONS", ""),
        checks=checks,
    )
