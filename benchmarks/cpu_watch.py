"""The CPU of a process and of all below it, by what they are."""

from __future__ import annotations

import subprocess
import threading

import psutil

KINDS = {
    "org.apache.spark.launcher.Main": "Java that writes Spark's command line",
    "org.apache.spark.deploy.SparkSubmit": "Spark's Java",
    "pyspark.daemon": "Spark's Python workers",
    "enrich_day.py": "the Spark program's Python",
    "process_guard": "the guard",
    "run_days": "Dagster",
    "tidegate": "tidegate run",
}


class CpuWatch:
    """Looks at the processes every so many seconds, until they end or it is ended."""

    def __init__(self, process: subprocess.Popen[bytes], every: float = 0.02) -> None:
        self._root = psutil.Process(process.pid)
        self._every = every
        self._spent: dict[tuple[int, float], tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    words, times = " ".join(process.cmdline()), process.cpu_times()
                except psutil.Error:
                    continue
                kind = next((kind for word, kind in KINDS.items() if word in words), "shells")
                self._spent[process.pid, process.create_time()] = kind, times.user + times.system

    def end(self) -> dict[str, float]:
        """The CPU seconds by kind of process."""
        self._ended.set()
        self._thread.join()
        found: dict[str, float] = {}
        for kind, seconds in self._spent.values():
            found[kind] = found.get(kind, 0.0) + seconds
        return found
