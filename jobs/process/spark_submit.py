"""The Spark program as a process: started with spark-submit under a guard, and never left behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import LOG_SAYS_MORE
from jobs.process.process_guard import command_under_guard
from jobs.run import local_master
from jobs.run.enrich_day import FAILED, LOG_VARIABLE, STOPPED, WRONG
from jobs.schema import DayRecord
from jobs.tables.leases import Lease

HERE = Path(__file__).resolve().parent
LOGGING = HERE / "log4j2.properties"
PROGRAM = HERE.parent / "run" / "enrich_day.py"
CLASS_ARCHIVE = Path(sys.prefix, "spark.jsa")
NO_WARNINGS = "-Xlog:disable -Xlog:all=error"  # Java goes on without an archive that does not fit
JAVA = 17
OWN_WORDS = (FAILED, WRONG, STOPPED)  # exit statuses with which the program has said why


@dataclass(frozen=True)
class ProgramResult:
    """How one run of the Spark program ended. record is None unless the day's files were written and checked."""

    code: int
    record: DayRecord | None
    reason: str  # one sentence; empty when all went well
    state: str = "failed"  # or the word of errors.RunStopped and its kinds; counts only without a record
    progress: str = ""  # how far it came, in one line; known only of a program that could say why it ended

    @property
    def crashed(self) -> bool:
        """True when the program was killed or broke off, so that the same again may go well."""
        return self.record is None and self.code not in OWN_WORDS


@dataclass(frozen=True, kw_only=True)
class SparkSubmit:
    """How `jobs/run/enrich_day.py` is started. master, conf: as spark-submit takes them; java_options: for the driver.

    grace: s between SIGTERM and SIGKILL. tell_every: s between two words to whoever waits. Whatever ends the process
    that started it, Spark is ended too.
    """

    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    grace: float = 10.0
    tell_every: float = 300.0

    def run(
        self,
        reference: str,
        *,
        days: Sequence[str],
        run_id: str,
        log: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        leases: Sequence[Lease] = (),
        while_running: Callable[[], None] | None = None,
    ) -> int:
        """Run the program for these days to its end; what it prints goes to the file `log`. Returns its exit status.

        options: further ones of the program, as --checks. environment: on top of ours. leases: of the days; Spark holds
        them too, so that none is free before Spark has ended. while_running is called every `tell_every` s.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            if missing := java_missing():
                output.write(missing.encode())
                return FAILED
            return _run_to_the_end(
                command_under_guard([*self._command(reference, days, run_id), *options], grace=self.grace),
                python_environment() | self._environment(log) | dict(environment or {}),
                output.fileno(),
                hold=[lease.file for lease in leases],
                while_running=while_running or (lambda: None),
                every=self.tell_every,
            )

    def _environment(self, log: Path) -> dict[str, str]:
        return local_master.environment_of(self.master) | {LOG_VARIABLE: str(log)}

    def _command(self, reference: str, days: Sequence[str], run_id: str) -> list[str]:
        spark_submit = Path(sys.executable).parent / "spark-submit"
        logging = f"-Dlog4j2.configurationFile=file:{LOGGING}"
        conf = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": " ".join(filter(None, [logging, archived_classes(), self.java_options])),
        } | dict(self.conf)
        if self.master.startswith(("yarn", "k8s://")):  # they make a secret per application; a standalone master cannot
            conf.setdefault("spark.authenticate", "true")
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return [
            *(str(spark_submit), "--master", self.master, "--name", f"{reference} {days[0]}", *settings, str(PROGRAM)),
            *("--enrichment", reference, "--day", *days, "--run-id", run_id),
        ]


def archived_classes() -> str:
    """The option that has Java map Spark's classes from CLASS_ARCHIVE; empty when there is no such file."""
    made = CLASS_ARCHIVE.exists() and CLASS_ARCHIVE.stat().st_size > 0
    return f"{NO_WARNINGS} -XX:SharedArchiveFile={CLASS_ARCHIVE}" if made else ""


def python_environment() -> dict[str, str]:
    """Ours, with this interpreter for driver and workers, and the modules of the folder that we stand in."""
    own_modules = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return dict(os.environ) | python | {"PYTHONPATH": own_modules}


def java_missing() -> str:
    """What to say where there is no Java to start Spark with, or one that says it is too old; else nothing."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java") if home else "java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "none is on PATH, and JAVA_HOME is not set"
        return f"Spark needs Java {JAVA} or newer: {where}. Nothing was called."
    if (version := _java_version(Path(java))) < JAVA:
        where = f"JAVA_HOME is {home}, which has Java {version}" if home else f"{java} is Java {version}"
        return f"Spark needs Java {JAVA} or newer: {where}. Set JAVA_HOME to a newer one. Nothing was called."
    return ""


def _java_version(java: Path) -> int:
    """As the file `release` beside it says, which costs no start of Java; new enough where there is none."""
    with contextlib.suppress(OSError):
        release = (java.resolve().parents[1] / "release").read_text()
        if message := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE):  # 1.8.0 is Java 8
            return int(message[1])
    return JAVA


def spark_submit_from_environment() -> SparkSubmit:
    """As the environment wants it: TIDEGATE_SPARK_MASTER, _DRIVER_MEMORY, _JAVA_OPTIONS."""
    return SparkSubmit(
        master=os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"),
        conf={"spark.driver.memory": os.environ.get("TIDEGATE_SPARK_DRIVER_MEMORY", "1g")},
        java_options=os.environ.get("TIDEGATE_SPARK_JAVA_OPTIONS", ""),
    )


def ended(code: int, record: DayRecord | None, reason: str, log: Path) -> ProgramResult:
    """What came of it: `record` counts when all went well; else `reason`, or what the log says last."""
    if code == 0 and record is not None:
        return ProgramResult(code, record, "")
    if not reason:
        broke_off = f"Spark ended with status {code} before the day was done.{LOG_SAYS_MORE}{log}"
        reason = _last_line(log) if code in OWN_WORDS else broke_off
    return ProgramResult(code, None, reason)


def _run_to_the_end(
    command: list[str],
    environment: Mapping[str, str],
    output: int,
    *,
    hold: list[int],
    while_running: Callable[[], None],
    every: float,
) -> int:
    process = subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True, pass_fds=hold,
    )  # fmt: skip
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(every)
            while_running()
    except BaseException:  # a cancel from Dagster, or Ctrl-C
        process.terminate()
        process.wait()  # the guard gives Spark its grace, then kills it
        raise


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "The Spark program ended without a word."
