"""Settings of a Spark on a single machine: it listens only on loopback, authenticates its processes
by a secret, and retries a failed task.
"""

import codecs
import locale
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
    """Return a local master whose tasks have ATTEMPTS, unless it says how many: otherwise Spark
    makes a single attempt in local mode.
    """
    threads = re.fullmatch(r"local(?:\[\s*([0-9]+|\*)\s*\])?", master)
    return master if threads is None else f"local[{threads[1] or 1},{ATTEMPTS}]"


def allowed_task_attempts(master: str) -> int:
    """Return the attempts of a task that a local master allows."""
    allowed = re.fullmatch(r"local\[[^,]*,\s*([0-9]+)\s*\]", master)
    return 1 if allowed is None else int(allowed[1])


def start_settings(master: str) -> dict[str, str]:
    """Return settings to start Spark with, besides `environment`; empty if not local."""
    if not is_local(master):
        return {}
    # elsewhere, as on macOS, a process that has loaded numpy may not survive a fork
    daemon = {"spark.python.daemon.module": DAEMON} if sys.platform == "linux" else {}
    return daemon | {
        "spark.master": with_attempts(master),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # Other users of the machine reach loopback too. Spark makes a secret itself, but its
        # accumulator server waits for ever for a client that connects and sends nothing, and its
        # daemon forks for each connection.
        "spark.authenticate": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder_of_process()),  # they do not authenticate
    }


def jvm_environment(master: str) -> dict[str, str]:
    """Return the JVM's environment: Spark's page binds to this address despite any setting, and
    in an ASCII locale, as LC_ALL=C is, Java cannot open files with other letters in their names.
    """
    environment = {"SPARK_LOCAL_IP": LOOPBACK} if is_local(master) else {}
    if codecs.lookup(locale.nl_langinfo(locale.CODESET)).name == "ascii":
        environment["LC_ALL"] = "C.UTF-8"
    return environment
