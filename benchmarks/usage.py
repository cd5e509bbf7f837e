"""The time, the CPU and the memory of a process and of all below it."""

import contextlib
import cProfile
import pstats
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from jobs.run.engines.local_master import DAEMON

WORKERS = f"-m {DAEMON}"
KINDS = {
    "org.apache.spark.launcher.Main": "Java that writes Spark's command line",
    "org.apache.spark.deploy.SparkSubmit": "Spark's Java",
    WORKERS: "Spark's Python workers",
    "enrich_day.py": "the Spark program's Python",
    "process_guard": "the guard",
    "run_days": "Dagster",
    "tidegate": "tidegate run",
}


def run_measured(command: Sequence[str], **options: Any) -> tuple[float, float, str]:
    """Run a command to its end; return its seconds of wall, its seconds of CPU and its output."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def medians(figures: Iterable[Iterable[float]]) -> list[float]:
    """Return the median of each column."""
    return [statistics.median(column) for column in zip(*figures, strict=True)]


@contextlib.contextmanager
def profiled_loop(lines: int) -> Iterator[None]:
    """Run an event loop's thread under cProfile; print the functions that took the most time."""
    profiler = cProfile.Profile()
    threading.setprofile(
        lambda *_: profiler.enable() if threading.current_thread().name == "tidegate-loop" else None
    )
    yield
    threading.setprofile(None)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(lines)


def cpu_s(pid: int | None = None) -> float:
    """CPU seconds, also of processes that ended before their parent; by default of this process."""
    total = 0.0
    for process in _family(psutil.Process(pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _family(root: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


class _Watch:
    """Looks at processes repeatedly; without pid, at this process and all below it."""

    def __init__(self, pid: int | None = None, every: float = 0.5) -> None:
        self._root, self._every = psutil.Process(pid), every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            over = self._ended.wait(self._every)  # then once more: workers outlive their task
            for process in _family(self._root):
                with contextlib.suppress(psutil.Error, OSError):
                    self.look(process, " ".join(process.cmdline()))

    def look(self, process: psutil.Process, command: str) -> None:
        raise NotImplementedError


class CpuWatch(_Watch):
    def __enter__(self) -> Self:
        self._spent: dict[tuple[int, float], tuple[str, float]] = {}
        return super().__enter__()

    def look(self, process: psutil.Process, command: str) -> None:
        kind = next((kind for word, kind in KINDS.items() if word in command), "shells")
        times = process.cpu_times()
        self._spent[process.pid, process.create_time()] = kind, times.user + times.system

    def by_kind(self) -> dict[str, float]:
        """CPU seconds, the most first."""
        found: dict[str, float] = {}
        for kind, seconds in self._spent.values():
            found[kind] = found.get(kind, 0.0) + seconds
        return dict(sorted(found.items(), key=lambda one: -one[1]))


class MemoryWatch(_Watch):
    """peaks: in MB, the largest high-water mark of the resident memory (VmHWM) of each kind of
    process.
    """

    def __enter__(self) -> Self:
        self.peaks = dict.fromkeys(("worker", "Java", "driver"), 0)
        return super().__enter__()

    def look(self, process: psutil.Process, command: str) -> None:
        kind = "worker" if WORKERS in command else "Java" if "java" in command else "driver"
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        marks = [int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")]
        self.peaks[kind] = max(self.peaks[kind], *marks)
