"""The driver's side of the ledger in one run: the answers of the day's keys, as one index file per lookup."""

from __future__ import annotations

import functools
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import LedgerError
from jobs.ledger.abandoned import RUNS, remove_run
from jobs.ledger.answers import ANSWERS, SCHEMA, taken
from jobs.ledger.generations import COMPACTED
from jobs.ledger.index import write_index
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.store import PARTS, LedgerFolder
from jobs.run.judged_answers import without_old_errors
from jobs.run.key_columns import ROWS, TEXT
from jobs.storage.urls import is_url
from jobs.task.task_ledger import without_expired

if TYPE_CHECKING:
    from jobs.declare.lookup import Lookup
    from jobs.run.day_keys import KeySource, SparkKeys
    from jobs.run.driver_keys import DriverKeys

BEAT = "run.json"  # in it; written again every BEAT_EVERY s
BEAT_EVERY = 10.0

_log = logging.getLogger("tidegate.ledger")


@dataclass(frozen=True)
class Hits:
    """The ledger's answers for one lookup's keys of one day."""

    plan: LedgerPlan | None  # None: nothing is stored
    names: tuple[str, ...]  # the columns of the key
    keys: DriverKeys | SparkKeys
    answers: pa.Table  # of those that need no call, as `select` gives them
    lookup: Lookup

    @functools.cached_property
    def missing(self) -> pa.Table:
        known = self.answers["key"].combine_chunks()
        return self.keys.wanted.filter(pc.invert(pc.is_in(self.keys.wanted[TEXT], value_set=known)))

    @property
    def repeated(self) -> pa.Table:
        return self.missing.filter(pc.greater(self.missing[ROWS], 1))


def run_of_keys(run_id: str) -> str:
    """The run id of parts that a run writes during its prefetch."""
    return f"{run_id}-keys"


def folder_of(plan: LedgerPlan) -> LedgerFolder:
    return LedgerFolder(plan.root, plan.lookup, plan.fingerprint)


def find_hits(source: KeySource, plan: LedgerPlan | None, *, seed: int) -> Hits:
    """The distinct keys of a day, and the newest answer of each that still holds. Raises LedgerError."""
    keys = source.distinct(hidden=plan is not None and plan.hidden, seed=seed)
    known = SCHEMA.empty_table() if plan is None else _known(source.lookup, plan, keys.wanted)
    return Hits(plan, source.names, keys, known, source.lookup)


def _known(lookup: Lookup, plan: LedgerPlan, wanted: pa.Table, clock: Callable[[], int] = time.time_ns) -> pa.Table:
    now = clock() // 1000
    answers = select(folder_of(plan), wanted[TEXT], now_us=now, ttl=plan.ttl).answers
    return without_old_errors(lookup, answers, ttl=plan.ttl, now_us=now)[0]


def with_own_answers(hits: Hits) -> pa.Table:
    """What is stored now, what this run has, and `hits.answers`: all holds to the end of this run, whatever its age."""
    assert hits.plan is not None
    folder = folder_of(hits.plan)
    own = without_expired(folder.read(folder.parts(run_of_keys(hits.plan.run_id))))
    own = own.filter(pc.is_in(own["outcome"], value_set=pa.array(ANSWERS)))
    own = own.append_column("place", pa.array(range(own.num_rows), pa.int64()))
    last = own.group_by("key").aggregate([("place", "max")])["place_max"]
    own = taken(own, last.to_numpy()).drop_columns(["place"])
    since = _known(hits.lookup, hits.plan, hits.keys.wanted)
    known = own
    for older in (since, hits.answers):
        more = older.filter(pc.invert(pc.is_in(older["key"], value_set=known["key"].combine_chunks())))
        known = pa.concat_tables([more.select(own.column_names), known])
    return known


def file_of_run(plan: LedgerPlan, name: str) -> str:
    """The file as an executor opens it; a URL's options, as ?endpoint_override=..., stay behind its path."""
    root, mark, options = plan.root.partition("?") if is_url(plan.root) else (plan.root, "", "")
    return f"{root.rstrip('/')}/{plan.lookup}/{plan.fingerprint}/{RUNS}/{plan.run_id}/{name}{mark}{options}"


def with_index(plan: LedgerPlan, answers: pa.Table, clock: Callable[[], int] = time.time_ns) -> LedgerPlan:
    """The plan with an index of these answers, where every executor reads it; without one when there are none."""
    if not answers.num_rows:
        return plan
    path = file_of_run(plan, f"index-{clock()}.arrow")  # a new name: a task may have the last one mapped
    write_index(path, answers)
    return replace(plan, index=path)


class Found(NamedTuple):
    """What was in the ledger when a run had made its folder. others: runs that have one: they ask too, or crashed."""

    others: list[str]
    has_answers: bool


def register_run(plan: LedgerPlan) -> Found:
    """Make this run's folder, so that others see it, and look who and what else is there.

    What a run has whose process is known to be gone is taken away at once, so that nobody waits for it, and the runs
    after this one do not take it for one that asks.
    """
    heartbeat(plan)
    folder = folder_of(plan)
    names = folder.names()
    others = {name.split("/")[1] for name in names if name.startswith(f"{RUNS}/")} - {plan.run_id}
    for run in sorted(others):
        if _is_gone(folder, run):
            unregister_run(replace(plan, run_id=run))
    has_answers = any(name.startswith((f"{PARTS}/", f"{COMPACTED}/")) for name in names)
    return Found(sorted(others), has_answers)


def heartbeat(plan: LedgerPlan) -> None:
    """Write a heartbeat with this run's host. Raises LedgerError."""
    message = {"run_id": plan.run_id, "host": _host(), "pid": os.getpid()}
    folder_of(plan).replace(f"{RUNS}/{plan.run_id}/{BEAT}", json.dumps(message).encode())


def _host() -> str:
    """The scope of process numbers: a host or a container."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # not a path
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()


def _is_gone(folder: LedgerFolder, run: str) -> bool:
    """Whether the process of a run is known to have ended: only here, and only where it says so itself. One without a
    beat, which comes first of all, has left what its tasks wrote after it was taken for gone.
    """
    try:
        message = json.loads(folder.read_bytes(f"{RUNS}/{run}/{BEAT}"))
        if message["host"] != _host():
            return False
        os.kill(int(message["pid"]), 0)
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (LedgerError, PermissionError, ValueError, KeyError, TypeError):  # as of another user's: it may live
        return False
    return False


@contextmanager
def heartbeats(plans: Sequence[LedgerPlan]) -> Iterator[None]:
    """Write heartbeats every few seconds while the run lives, so that others respect its claims."""
    ended = threading.Event()

    def say() -> None:
        while not ended.wait(BEAT_EVERY):
            for plan in plans:
                with suppress(LedgerError):  # at worst others repeat this run's calls
                    heartbeat(plan)

    thread = threading.Thread(target=say, name="ledger beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def unregister_run(plan: LedgerPlan) -> None:
    """Remove this run's folder. Files that cannot be removed stay, with a warning, for the ledger's clean-up."""
    folder = folder_of(plan)
    try:
        remove_run(folder, plan.run_id)
    except LedgerError as error:
        _log.warning("ledger %s: run %s left files behind: %s", folder.path, plan.run_id, error)
