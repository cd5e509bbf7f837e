"""Puts the simulation below the product: in place of the standard library's threads, clocks,
sockets and files.

The modules of the product name what they use by its module (`threading.Lock`), or import it by
name, or have it as an argument's default. One walk over the loaded modules replaces all three, by
identity. It lasts for the process, so the simulation has a process of its own.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import random
import secrets
import select
import selectors
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import aiohttp.connector
import pyarrow as pa

from tests.simulation import clock, file_access, http_service, limits_store, sockets, threads
from tests.simulation.file_access import ROOT, DiskPath
from tests.simulation.night_at_work import scheduler
from tests.simulation.processes import current

OURS = ("jobs", "asyncio_core")


class PerProcess:
    """Module-wide state of the product, of which each simulated process has its own."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name, self._make = name, make

    def _mine(self) -> Any:
        state = scheduler().me().process.state
        if self._name not in state:
            state[self._name] = self._make()
        return state[self._name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine(), name)


class PerProcessLock(PerProcess):
    def __enter__(self) -> Any:
        return self._mine().__enter__()

    def __exit__(self, *error: object) -> None:
        self._mine().__exit__(*error)


class PerProcessMapping(PerProcess, MutableMapping[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        return self._mine()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._mine()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._mine()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mine())

    def __len__(self) -> int:
        return len(self._mine())


def stand_in(module: types.ModuleType, **replaced: Any) -> types.ModuleType:
    """A module that has these names of its own, and all others of the real one."""
    made = types.ModuleType(module.__name__)
    made.__getattr__ = lambda name: getattr(module, name)  # type: ignore[method-assign]
    vars(made).update(replaced)
    return made


def _getpid() -> int:
    return scheduler().me().process.pid


def _send_signal(pid: int, number: int) -> None:
    assert number == 0, "the product only asks whether a process lives"
    if scheduler().with_pid(pid) is None:
        raise ProcessLookupError


def _host_name() -> str:
    return scheduler().me().process.host


def _seeded_random(seed: object = None) -> random.Random:
    return random.Random(scheduler().token_bits(64) if seed is None else seed)


REPLACED: dict[int, Any] = {
    id(threading): stand_in(
        threading, Thread=threads.Thread, Lock=threads.Lock, RLock=threads.RLock,
        Condition=threads.Condition, Event=threads.Event,
    ),
    id(time): stand_in(
        time, monotonic=clock.monotonic, time=clock.time, monotonic_ns=clock.monotonic_ns,
        time_ns=clock.time_ns, perf_counter=clock.monotonic, sleep=clock.sleep,
        clock_gettime=limits_store.since_start,
    ),
    id(queue): stand_in(queue, SimpleQueue=threads.SimpleQueue, Queue=threads.SimpleQueue),
    id(secrets): stand_in(secrets, token_hex=clock.token_hex, randbits=clock.randbits),
    id(random): stand_in(random, Random=_seeded_random, random=clock.draw, uniform=clock.uniform),
    id(uuid): stand_in(uuid, uuid4=clock.uuid4),
    id(socket): stand_in(
        socket, socket=sockets.SimulatedSocket, create_connection=sockets.create_connection,
        gethostname=_host_name, socketpair=sockets.socketpair,
    ),
    id(select): stand_in(select, poll=http_service.Poll),
    id(selectors): stand_in(selectors, DefaultSelector=sockets.Selector),
    id(asyncio): stand_in(asyncio, new_event_loop=clock.Loop, run_coroutine_threadsafe=clock.run_coroutine_threadsafe),
    id(os): stand_in(
        os, getpid=_getpid, kill=_send_signal, readlink=lambda _: "", open=file_access.os_open,
        close=file_access.os_close, fsync=file_access.os_fsync, stat=file_access.os_stat,
        utime=file_access.os_utime,
    ),
    id(time.monotonic): clock.monotonic,
    id(time.time): clock.time,
    id(time.time_ns): clock.time_ns,
    id(time.monotonic_ns): clock.monotonic_ns,
    id(time.perf_counter): clock.monotonic,
    id(time.sleep): clock.sleep,
    id(secrets.token_hex): clock.token_hex,
    id(secrets.randbits): clock.randbits,
    id(uuid.uuid4): clock.uuid4,
    id(concurrent.futures.ThreadPoolExecutor): threads.ThreadPoolExecutor,
    id(concurrent.futures.Future): threads.Future,
}  # fmt: skip


def install(values: dict[Any, Any]) -> None:
    """Replace what the product uses of the outside.

    Args:
        values: More values of the product itself to replace wherever a module or an argument's
            default has them.
    """
    _replace_by_identity(REPLACED | {id(old): new for old, new in values.items()})
    _replace_files()
    pa.set_cpu_count(1)  # Arrow's threads group chunks in the order in which they come


def replace_everywhere(values: dict[Any, Any]) -> None:
    """Replace these values of the product wherever a module or an argument's default has them."""
    _replace_by_identity({id(old): new for old, new in values.items()})


def _replace_by_identity(replaced: dict[int, Any]) -> None:
    seen: set[int] = set()
    for module in product_modules():
        _replace_in(module, replaced)
        for part in parts_of(module, seen):
            if isinstance(part, type):
                _replace_in(part, replaced)
                continue
            if part.__defaults__:
                part.__defaults__ = tuple(
                    replaced.get(id(default), default) for default in part.__defaults__
                )
            if part.__kwdefaults__:
                part.__kwdefaults__ = {
                    name: replaced.get(id(default), default)
                    for name, default in part.__kwdefaults__.items()
                }


def _replace_in(holder: Any, replaced: dict[int, Any]) -> None:
    for name, value in list(vars(holder).items()):
        if id(value) in replaced:
            setattr(holder, name, replaced[id(value)])


def product_modules() -> list[types.ModuleType]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] in OURS and module is not None
    ]


def parts_of(holder: Any, seen: set[int]) -> Iterator[Any]:
    """The functions and classes of a module or of a class of the product, each once."""
    for value in list(vars(holder).values()):
        for part in (value.fget, value.fset) if isinstance(value, property) else (value,):
            if isinstance(part, PerProcess):
                continue
            inner = getattr(part, "__func__", part)
            inner = getattr(inner, "__wrapped__", inner)
            if id(inner) in seen or str(getattr(inner, "__module__", "")).split(".")[0] not in OURS:
                continue
            if isinstance(inner, types.FunctionType | type):
                seen.add(id(inner))
                yield inner
            if isinstance(inner, type):
                yield from parts_of(inner, seen)


def _replace_files() -> None:
    """The ledger's disk, and state that the processes of a real run do not share."""
    from jobs.ledger import journal, keyed_file, ledger_files, recent_parts, scan, store
    from jobs.ledger.writing import writer
    from jobs.run.coordinator import run_leases
    from jobs.task import output_files, runner, task_limits

    aiohttp.connector.monotonic = clock.monotonic  # type: ignore[attr-defined]  # its pool closes idle connections
    store.COMPRESSION = "none"  # what the files hold is the same, and each costs a third less
    writer.JOURNAL_EVERY = 0.1  # in place of 0.02 s: fewer appends of the same answers
    task_limits.ASK_AFTER = 0.2  # in place of 0.02 s: a task that waits for a call asks that often
    store.Path = _path  # type: ignore[misc, assignment]
    ledger_files.Path = _path  # type: ignore[misc, assignment]
    ledger_files.LedgerFiles._create = file_access.create  # type: ignore[method-assign]
    journal.pa = stand_in(pa, OSFile=_os_file)
    keyed_file.pa = stand_in(pa, memory_map=_memory_map)
    scan._RECENT = PerProcess("recent parts", recent_parts.RecentParts)  # type: ignore[assignment]
    run_leases._alone = PerProcessMapping("leases alone", dict)  # type: ignore[assignment]
    run_leases._opening = PerProcessLock("opening leases", threads.Lock)  # type: ignore[assignment]
    limits_store.install(stand_in)
    runner.rare_collections = contextlib.nullcontext  # type: ignore[assignment]  # of the whole real process
    output_files.TaskContext = types.SimpleNamespace(get=_task_context)  # type: ignore[assignment, misc]


def _path(*parts: Any) -> Any:
    text = os.path.join(*map(str, parts))  # noqa: PTH118
    return DiskPath(text) if text.startswith(ROOT) else Path(text)


def _os_file(path: str, mode: str) -> pa.NativeFile:
    if path.startswith(ROOT):
        return pa.PythonFile(file_access.OpenFile(DiskPath.disk, path), mode="w")
    return pa.OSFile(path, mode)


def _memory_map(path: str) -> pa.NativeFile:
    if path.startswith(ROOT):
        return scheduler().file_system.open_input_file(path)
    return pa.memory_map(path)


def _task_context() -> Any:
    me = current()
    return None if me is None else me.local.get("task")
