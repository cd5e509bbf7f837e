"""Loads the product's modules that nights of jobs drive, and puts the simulation below them."""

import asyncio
import fcntl
import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jobs.commands.vendor_jobs
import jobs.declare.finding.discovery
import jobs.ledger.job_files
import jobs.run.keys.vendor_jobs.job_step
import jobs.run.keys.vendor_jobs.waiting_days
import jobs.storage.durable
from jobs.ledger.job_files import JobFiles
from tests.simulation import clock, file_access, installation
from tests.simulation.file_access import DiskPath
from tests.simulation.night_at_work import scheduler
from tests.simulation.product import install as install_below
from tests.simulation.vendor_jobs.declared import enrichment_of
from tests.simulation.vendor_jobs.rules import AFTER


@functools.cache
def install() -> None:
    """Once for the process, which then runs nights and nothing else."""
    install_below()
    below = installation.REPLACED[id(os)]  # which stands in the modules already
    below.open, below.close = _open, _close
    installation.REPLACED[id(asyncio)].run = _run
    jobs.ledger.job_files.Path = installation._path  # type: ignore[assignment, misc]
    installation.replace_everywhere(
        {
            fcntl: installation.stand_in(fcntl, flock=_flock),
            jobs.declare.finding.discovery.discover: lambda _package: [
                SimpleNamespace(enrichment=enrichment_of(scheduler().world.night))
            ],
        }
    )
    for step in AFTER:
        setattr(JobFiles, step, _watched(step, getattr(JobFiles, step)))


def _run(work: Any) -> Any:
    """asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=clock.Loop) as runner:
        return runner.run(work)


def _watched(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def watched(self: JobFiles, token: str, *arguments: Any, **named: Any) -> Any:
        found = function(self, token, *arguments, **named)
        scheduler().rules.has_done(step, token, arguments[0])
        return found

    return watched


# -- locks of files ----------------------------------------------------------------------------------
def _open(path: Any, flags: int, *rest: int) -> int:
    if isinstance(path, DiskPath) and flags & os.O_CREAT and str(path) not in path.disk.files:
        path.disk.step("create", str(path), lambda: path.disk.create(str(path), exclusive=False))
    return file_access.os_open(path, flags, *rest)


def _close(handle: int) -> None:
    world = getattr(scheduler(), "world", None)  # nights of calls have no locks of files
    locks = {} if world is None else world.locks
    for path in [path for path, (holder, _) in locks.items() if holder == handle]:
        del locks[path]
    file_access.os_close(handle)


def _flock(handle: int, operation: int) -> None:
    """fcntl.flock, which waits for nobody; on a real file, of temporary folders, the real one."""
    if handle not in file_access._handles:
        fcntl.flock(handle, operation)
        return
    night = scheduler()
    locks, path = night.world.locks, file_access._handles[handle][1]
    if path in locks and not locks[path][1].is_dead:
        raise BlockingIOError
    locks[path] = handle, night.me().process
    night.give_way()
