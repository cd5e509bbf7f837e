"""The program of a day as a fork of this process, whose imports it need not repeat.

Half the CPU of a small day is imports, of which a program that is started anew makes most a second time.
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

WaitForEnd = Callable[[float | None], int | None]  # waits so many s, or to the end; exit status, None while it runs
STOCK = (HttpLookup, SqlLookup)  # their calls run no code of the user
M_TRIM_THRESHOLD, TRIM_AT = -1, 1 << 20  # of mallopt; as MALLOC_TRIM_THRESHOLD_ in GIVING_BACK


def runs_our_code(enrichment: Enrichment) -> bool:
    """Whether no lookup runs code of the user, which a fork or an Arrow without pandas may surprise."""
    return all(type(lookup) in STOCK for lookup in enrichment.lookups)


def can_fork() -> bool:
    """Whether a fork is safe now: there is no other thread, and no runtime of deltalake, which a fork breaks."""
    return sys.platform == "linux" and threading.active_count() == 1 and "deltalake" not in sys.modules


def spare_pandas() -> None:
    """Keep Arrow from importing pandas for its first array: 0.3 s, for objects that nobody here gives to it.

    `to_pandas` works all the same. Only for a process that runs our code alone: where somebody imports pandas later,
    Arrow reads its objects as it reads unknown ones.
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
    """Run a program in a fork of this process.

    It is waited for at the end, and ended first when the body raises. It ends with this process.

    Args:
        program: Returns its exit status.
        arguments: Of the program.
        output: Takes what it prints.
        environment: Its variables on top of ours.
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
    program: Callable[[list[str]], int], arguments: list[str], output: int, environment: Mapping[str, str], parent: int
) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it died before the kernel knew that we care
        return
    os.setsid()  # a Ctrl-C in the terminal is for the parent, which ends us
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    os.environ.update(environment)
    pa.set_memory_pool(pa.system_memory_pool())  # as GIVING_BACK has it for a program that is started anew
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, TRIM_AT)
    sys.exit(program(arguments))
