"""Starts the Spark program with spark-submit under a guard, so that it is never left behind."""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from jobs.errors import DeclarationError
from jobs.process.process_guard import command_under_guard
from jobs.process.program_thread import WaitForEnd, kept_at_work, started_in_thread
from jobs.process.spark_conf import read_settings, refuse_own_settings, settings_from_environment
from jobs.process.spark_needs import hidden_modules, why_spark_cannot_start
from jobs.run.coordinator.link_server import link_ports
from jobs.run.engines import local_master
from jobs.run.engines.engine import ENGINE, LOCAL, SPARK, chosen_engine
from jobs.run.engines.spark_session import GIVING_BACK, MASTER_VARIABLE
from jobs.run.enrich_day import FAILED, LOG_VARIABLE
from jobs.tables.leases.day_leases import Lease

HERE = Path(__file__).resolve().parent
LOGGING = HERE / "log4j2.properties"
PROGRAM = HERE.parent / "run" / "enrich_day.py"
CLASS_ARCHIVE = Path(sys.prefix, "spark.jsa")
# better compiled code pays off only after many rows. Names no collector: Java refuses two, and
# Spark's configuration may name another
SHORT_RUN = "-XX:TieredStopAtLevel=1"
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
NO_WARNINGS = "-Xlog:disable -Xlog:all=error"  # Java continues without an archive that does not fit
# lower(name) is a key's value: in Turkish it would be another one than on other machines
LANGUAGE = "-Duser.language=en"
REMOTE = "sc://"  # prefix of the address of a Spark Connect server


@dataclass(frozen=True, kw_only=True)
class SparkSubmit:
    """How `jobs/run/enrich_day.py` or another program is started.

    Whatever ends the process that started it also ends Spark.

    Attributes:
        master: As spark-submit takes it, or a server of Spark Connect, sc://host:15002, which has
            its configuration.
        conf: As spark-submit takes it.
        java_options: For the driver.
        environment: Of the program, added to ours.
        grace: s between SIGTERM and SIGKILL.
        engine: Of the run.
        in_process: Whether a short run of a day, without code of users, may share this process, as
            this process ends when its user interrupts it.
    """

    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    grace: float = 10.0
    engine: str = SPARK
    in_process: bool = False

    @contextlib.contextmanager
    def started(
        self,
        reference: str,
        *,
        days: Sequence[str],
        run_id: str,
        log: Path,
        options: Sequence[str] = (),
        leases: Sequence[Lease] = (),
    ) -> Iterator[WaitForEnd]:
        """Start the program for these days, as `program_started` does.

        Args:
            reference: module:name of the enrichment.
            days: The days.
            run_id: Names the run.
            log: Gets the output.
            options: Further options of the program, such as --checks.
            leases: Of the days; Spark holds them too, so that no lease is free before Spark has
                ended.
        """
        arguments = ["--enrichment", reference, "--day", *days, "--run-id", run_id, *options]
        with (
            started_in_thread([*arguments, "--engine", self.engine], log, leases)
            if self.in_process
            else self.program_started(
                PROGRAM, arguments, name=f"{reference} {days[0]}", log=log, leases=leases
            )
        ) as wait:
            yield wait

    @contextlib.contextmanager
    def program_started(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        name: str,
        log: Path,
        leases: Sequence[Lease] = (),
    ) -> Iterator[WaitForEnd]:
        """Start a program that writes to the file `log`. Yields the function that waits for it.

        The exit waits for the program, and ends it first if the body raises, as for a cancel or
        Ctrl-C.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            needs_spark = not self.is_remote and self.engine == SPARK
            if missing := hidden_modules() or (why_spark_cannot_start() if needs_spark else ""):
                output.write(missing.encode())
                output.flush()
                yield lambda _seconds: FAILED
                return
            process = subprocess.Popen(  # noqa: S603
                command_under_guard([*self._command(program, name), *arguments], grace=self.grace),
                env=python_environment(self.master) | self._environment(log)
                | dict(self.environment),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
                pass_fds=[lease.file for lease in leases if lease.file is not None],
            )  # fmt: skip
            wait = _waiting_for(process)
            with kept_at_work(leases, wait):
                try:
                    from jobs.tables import publishing  # noqa: F401  # imports Delta meanwhile, not after the checks

                    yield wait
                except BaseException:
                    process.terminate()  # the guard gives Spark its grace, then kills it
                    raise
                finally:
                    process.wait()

    def run(
        self,
        reference: str,
        *,
        days: Sequence[str],
        run_id: str,
        log: Path,
        options: Sequence[str] = (),
    ) -> int:
        """Run the program to its end, as `started` starts it. Returns its exit status."""
        with self.started(reference, days=days, run_id=run_id, log=log, options=options) as wait:
            while (code := wait(None)) is None:
                continue
        return code

    def for_short_run(self) -> Self:
        """Return the same with Java's options for few rows, if local and without other options."""
        is_chosen = self.java_options or any(os.environ.get(name) for name in JAVA_VARIABLES)
        is_for_us = local_master.is_local(self.master) and not is_chosen
        return replace(self, java_options=SHORT_RUN) if is_for_us else self

    @property
    def is_remote(self) -> bool:
        return self.master.startswith(REMOTE)

    @property
    def is_elsewhere(self) -> bool:
        """Whether tasks run on other machines."""
        return self.engine == SPARK and not local_master.is_local(self.master)

    def _environment(self, log: Path) -> dict[str, str]:
        remote = {"SPARK_REMOTE": self.master} if self.is_remote else {}
        variables = {LOG_VARIABLE: str(log), ENGINE: self.engine, MASTER_VARIABLE: self.master}
        return local_master.jvm_environment(self.master) | remote | variables

    def _command(self, program: Path, name: str) -> list[str]:
        if self.is_remote or self.engine == LOCAL:  # a client of Spark Connect, or the local engine
            return [sys.executable, str(program)]
        logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        conf = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": " ".join(
                filter(None, [logging, LANGUAGE, archived_classes(), self.java_options])
            ),
        } | dict(self.conf)
        # they make a secret per application, which a standalone master cannot
        if self.master.startswith(("yarn", "k8s://")):
            conf.setdefault("spark.authenticate", "true")
        if "spark.pyspark.python" in conf:  # otherwise the driver would use it too
            conf.setdefault("spark.pyspark.driver.python", sys.executable)
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        options = ["--master", self.master, "--name", name, *settings]
        return [str(find_script()), *options, str(program)]


def archived_classes() -> str:
    """Return the option to map Spark's classes from CLASS_ARCHIVE; empty without that file."""
    made = CLASS_ARCHIVE.exists() and CLASS_ARCHIVE.stat().st_size > 0
    return f'{NO_WARNINGS} "-XX:SharedArchiveFile={CLASS_ARCHIVE}"' if made else ""


def find_script() -> Path:
    """Return spark-submit of SPARK_HOME, or else of the installed pyspark.

    Its copy beside the interpreter fails where the path has a space, and is not everywhere.
    """
    home = os.environ.get("SPARK_HOME")
    if not home and (found := importlib.util.find_spec("pyspark")) and found.origin:
        home = str(Path(found.origin).parent)
    return Path(home or sys.prefix, "bin", "spark-submit")


def python_environment(master: str) -> dict[str, str]:
    """Return our environment, with this interpreter for the driver and this folder's modules.

    The workers use this interpreter too, unless PYSPARK_PYTHON names that of a cluster's image.
    """
    own_modules = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    of_workers = (
        sys.executable
        if local_master.is_local(master)
        else os.environ.get("PYSPARK_PYTHON", sys.executable)
    )
    python = {"PYSPARK_PYTHON": of_workers, "PYSPARK_DRIVER_PYTHON": sys.executable}
    python["PYTHONOPTIMIZE"] = ""  # PySpark reads docstrings, which 2 removes
    return GIVING_BACK | dict(os.environ) | python | {"PYTHONPATH": own_modules}


def spark_submit_from_environment(
    engine: str | None = None, settings: Sequence[str] = ()
) -> SparkSubmit:
    """Return the settings of the environment: TIDEGATE_SPARK_MASTER, _CONF, _DRIVER_MEMORY,
    _JAVA_OPTIONS, TIDEGATE_ENGINE.

    Args:
        engine: Chosen by a command, in place of the environment's.
        settings: Of a command's `--conf`, in place of those of the environment with the same keys.

    Raises:
        DeclarationError: The environment or a setting is wrong, or Spark would not use it.
    """
    link_ports()
    memory = {"spark.driver.memory": os.environ.get("TIDEGATE_SPARK_DRIVER_MEMORY", "1g")}
    added = settings_from_environment() | read_settings(settings, "--conf")
    submit = SparkSubmit(
        master=os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"),
        conf=memory | added,
        java_options=os.environ.get("TIDEGATE_SPARK_JAVA_OPTIONS", ""),
        engine=chosen_engine(engine),
    )
    if settings and submit.engine == LOCAL:
        raise DeclarationError(
            f"--conf {settings[0]}: the local engine has no Spark; leave --conf out."
        )
    if added and submit.is_remote and submit.engine != LOCAL:
        raise DeclarationError(
            f"{next(iter(added))}: a server of Spark Connect has its own configuration; set it "
            "there."
        )
    refuse_own_settings(added, submit.master)
    return submit


def _waiting_for(process: subprocess.Popen[bytes]) -> WaitForEnd:
    def wait(seconds: float | None) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    return wait
