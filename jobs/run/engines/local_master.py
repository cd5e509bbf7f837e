"""A Spark of one machine: it listens on loopback only, knows its own by a secret, and tries a failed task again."""

import functools
import re
import sys

from jobs.storage.locked_folders import folder_of_process
from jobs.task import worker_daemon

LOOPBACK = "127.0.0.1"
ATTEMPTS = 4  # of a task, as on a cluster
DAEMON = worker_daemon.__name__  # not on a cluster, where our modules reach the workers only


def is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def with_attempts(master: str) -> str:
    """A local master whose tasks have ATTEMPTS, unless it says how many: in local mode Spark makes one otherwise."""
    threads = re.fullmatch(r"local(?:\[\s*([0-9]+|\*)\s*\])?", master)
    return master if threads is None else f"local[{threads[1] or 1},{ATTEMPTS}]"


def allowed_task_attempts(master: str) -> int:
    """The attempts of a task that a local master allows."""
    allowed = re.fullmatch(r"local\[[^,]*,\s*([0-9]+)\s*\]", master)
    return 1 if allowed is None else int(allowed[1])


def start_settings(master: str) -> dict[str, str]:
    """What Spark is to be started with, beside `environment`; nothing where the master is not local."""
    if not is_local(master):
        return {}
    # elsewhere, as on macOS, a process that has loaded numpy may not survive a fork
    daemon = {"spark.python.daemon.module": DAEMON} if sys.platform == "linux" else {}
    return daemon | {
        "spark.master": with_attempts(master),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # other users of the machine reach loopback too. Spark makes a secret by itself; but its server of accumulators
        # waits for ever for one who connects and says nothing, and its daemon forks for each who connects
        "spark.authenticate": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _own_folder(),
    }


@functools.cache
def _own_folder() -> str:
    """For the sockets of this process, which ask nobody who he is: other users cannot enter it."""
    return str(folder_of_process())


def jvm_environment(master: str) -> dict[str, str]:
    """For the JVM: Spark's page, where somebody wants it, binds to this address and heeds no setting."""
    return {"SPARK_LOCAL_IP": LOOPBACK} if is_local(master) else {}
