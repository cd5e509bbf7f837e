"""A real Spark standalone cluster on loopback, out of the pyspark wheel: a master and workers of
one core each.

The executors' Python has what pip installed, but not this project, so that what they import of it
came with the job. They run in folders of their own.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import psutil
import pyspark
import pytest

from jobs.process.process_guard import command_under_guard
from jobs.process.spark_submit import find_script

UP_WITHIN = 120.0  # s; a bound on a loaded machine, not a promise
# a third less CPU: these programs end too soon
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_HOME = Path(pyspark.__file__).parent


def bare_python(folder: Path) -> Path:
    """A Python with this environment's installed packages but for the project, which is there by a
    .pth only.
    """
    venv.create(folder, symlinks=True)
    ours = Path(sysconfig.get_paths()["purelib"])
    theirs = folder / ours.relative_to(sys.prefix)
    (theirs / "installed.pth").write_text(f"{ours}\n")  # .pth files found in there are not read
    return folder / "bin" / "python"


class Cluster:
    """Started by `start`, ended by `stop` whatever happened between; also ends when this process is
    killed.
    """

    def __init__(self, root: Path, *, python: Path, hosts: tuple[str, ...]) -> None:
        """hosts: a worker on each; all of 127.0.0.0/8 are this machine, and different hosts to
        Spark.
        """
        self.root, self.python = root, python
        self._processes: list[subprocess.Popen] = []
        self._hosts = hosts
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        } | ({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {})

    def start(self, **variables: str) -> None:
        """variables: what the operators of the cluster set for its executors, as addresses of
        services.
        """
        self.environment |= variables
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self._run(
            "master",
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        )
        for number, host in enumerate(self._hosts):
            folder = str(self.root / f"worker-{number}")
            resources = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                folder,
                "--host",
                host,
                self.master,
            )
            self._run(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *resources)
        self._wait_for(lambda: self.log("master").count("Registering worker") == len(self._hosts))

    def _run(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.log").open("wb") as log:
            launch = [
                str(SPARK_HOME / "bin" / "spark-class"),
                command[0],
                "--webui-port",
                "0",
                *command[1:],
            ]
            self._processes.append(
                subprocess.Popen(
                    command_under_guard(launch, grace=5.0),
                    env=self.environment,
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait_for(self, condition) -> None:
        deadline = time.monotonic() + UP_WITHIN
        while not condition():
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, f"ended early: {ended}: {self.log('master')[-2000:]}"
            assert time.monotonic() < deadline, self.log("master")[-2000:]
            time.sleep(0.1)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs, each with the worker JVM that started it as its parent."""
        return [
            process
            for process in self._all()
            if "CoarseGrainedExecutorBackend" in " ".join(command(process))
        ]

    def pythons(self) -> list[psutil.Process]:
        """Python daemons and workers of the executors."""
        return [process for process in self._all() if "pyspark.daemon" in command(process)]

    def _all(self) -> list[psutil.Process]:
        """All that runs with this cluster's HOME: Python daemons leave their process group, and
        lose their parents.
        """
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.root):
                    found.append(process)
        return found

    def kill_a_worker(self) -> float:
        """kill -9 one worker and its executor, at once. Gives the moment, s since the epoch."""
        executor = self.executors()[0]
        worker = executor.parent()
        assert "deploy.worker.Worker" in " ".join(command(worker))
        moment = time.time()
        for process in (worker, executor):
            process.send_signal(signal.SIGKILL)
        return moment

    def submit(
        self, *arguments: str, program: Path, conf: dict[str, str] | None = None, **variables: str
    ):
        """A spark-submit to this cluster, running."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
        } | (conf or {})
        words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        files, rest = [], list(arguments)
        while rest and rest[0] in ("--py-files", "--archives"):
            files += [rest.pop(0), rest.pop(0)]
        launch = [str(find_script()), "--master", self.master, *words, *files, str(program), *rest]
        environment = dict(os.environ) | {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": str(self.python),
        }
        environment.pop("PYTHONPATH", None)
        return subprocess.Popen(
            command_under_guard(launch, grace=5.0),
            env=environment | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.fixture
def new_cluster(tmp_path):
    """Makes a cluster whose executors run this Python; it is ended with the test."""
    with contextlib.ExitStack() as started:

        def make(python: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")) -> Cluster:
            found = Cluster(tmp_path, python=python, hosts=hosts)
            started.callback(found.stop)
            return found

        yield make


@pytest.fixture
def cluster(new_cluster, tmp_path):
    return new_cluster(bare_python(tmp_path / "python"))
