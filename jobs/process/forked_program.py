"""Runs the program of a day as a fork of this process, whose imports it need not repeat.

Imports take half the CPU of a small day, and a newly started program repeats most of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from jobs.declare.http_lookup import HttpLookup
from jobs.declare.sql_lookup import SqlLookup
from jobs.process.process_guard import die_with_parent

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment

# waits so many s, or to the end; returns the exit status, None while it runs
WaitForEnd = Callable[[float | None], int | None]
STOCK = (HttpLookup, SqlLookup)  # their calls run no code of the user
M_TRIM_THRESHOLD, TRIM_AT = -1, 1 << 20  # of mallopt; like MALLOC_TRIM_THRESHOLD_ in GIVING_BACK


def runs_our_code(enrichment: Enrichment) -> bool:
    """Returns whether no lookup runs user code, which a fork, or missing pandas, could break."""
    return all(type(lookup) in STOCK for lookup in enrichment.lookups)


def can_fork() -> bool:
    """Returns whether a fork is safe: no other thread runs, and deltalake is not loaded."""
    return (
        sys.platform == "linux" and threading.active_count() == 1 and "deltalake" not in sys.modules
    )


def spare_pandas() -> None:
    """Keeps Arrow from importing pandas at its first array (0.3 s); it gets no pandas object.

    `to_pandas` still works. Only for a process that runs nothing but our code: if pandas is
    imported later, Arrow reads its objects like unknown objects.
    """
    if "pandas" in sys.modules:
        return
    hiding = _HidesPandas()
    sys.meta_path.insert(0, hiding)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hiding)


class _HidesPandas:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not looked for", name=name)


@contextlib.contextmanager
def forked(
    program: Callable[[list[str]], int],
    arguments: list[str],
    *,
    output: IO[bytes],
    environment: Mapping[str, str],
    grace: float,
) -> Iterator[WaitForEnd]:
    """Runs a program in a fork of this process.

    The exit waits for the program, and ends it first if the body raises. The program ends with this
    process.

    Args:
        program: Returns its exit status.
        arguments: Of the program.
        output: Gets its output.
        environment: Variables added to ours.
        grace: Seconds between SIGTERM and SIGKILL.

    Yields:
        The function that waits for its end.
    """
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(program, arguments, output.fileno(), environment, os.getpid())
    )
    process.start()

    def wait(seconds: float | None) -> int | None:
        process.join(seconds)
        code = process.exitcode
        return 128 - code if code is not None and code < 0 else code

    try:
        yield wait
    except BaseException:
        process.terminate()
        process.join(grace)
        process.kill()
        raise
    finally:
        process.join()


def _run(
    program: Callable[[list[str]], int],
    arguments: list[str],
    output: int,
    environment: Mapping[str, str],
    parent: int,
) -> None:
    die_with_parent()
    if os.getppid() != parent:  # the parent died before the call above
        return
    os.setsid()  # a Ctrl-C in the terminal goes to the parent, which ends us
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.environ.update(environment)
    # as GIVING_BACK sets it for a newly started program
    pa.set_memory_pool(pa.system_memory_pool())
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, TRIM_AT)
    sys.exit(program(arguments))
