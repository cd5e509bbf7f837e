"""The ledger inside a task, without Spark: what is stored when, what is not asked again, what is
never stored.
"""

import asyncio
import dataclasses
import itertools
import os
import socket
import threading
import time
from collections import Counter
from datetime import timedelta
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from aiohttp import web

from asyncio_core import Gate
from jobs.clients import request_counter
from jobs.clients.client import NotSent
from jobs.clients.function import FunctionClient
from jobs.clients.http.session_client import SessionClient
from jobs.declare.answers.answer_json import dump
from jobs.declare.ledger_settings import Ttl
from jobs.errors import AccessRefused, BudgetExhausted, LedgerError, RowFailed, RunStopped
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.index import write_index
from jobs.ledger.keys import key_text
from jobs.ledger.plan import CallCap, LedgerPlan
from jobs.ledger.resolution import effective_records
from jobs.ledger.store import LedgerFolder
from jobs.schema import columns as schema
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.marked_calls import Marks
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import Function, batch, batches, collected, in_time, lookup, plan
from tests.support.places import everywhere, place_of
from tidegate import Batch, HttpLookup, Outage, Pages, Retry, Service

RUN = "r1"
NO_RETRY = Retry(retries=0)
BATCH_OF_ONE = {
    "request": "POST /",
    "batch": Batch(max_items=1, max_wait=0.0, item="{k}", match="$.k"),
}


EVERYWHERE = everywhere("folder", on_store=pytest.mark.proof)


@pytest.fixture
def folder(request, tmp_path):
    return LedgerFolder(f"{place_of(request, str(tmp_path))}/ledger", "first", "f" * 16)


def kept(folder, *, run=RUN):
    return as_answers(folder.read(folder.parts(run)))


def with_ledger(planned, folder, **fields):
    standard = {
        "ttl": Ttl(),
        "flush_rows": 200,
        "flush_seconds": 0.05,
        "idempotent": planned.lookups[0].idempotent,
    }
    ledger = LedgerPlan(
        folder.root, folder.lookup, folder.fingerprint, **{"run_id": RUN} | standard | fields
    )
    return dataclasses.replace(planned, ledgers=(ledger,))


def index_of(folder, *answers):
    """An index of a run: (key, outcome, answer, µs)."""
    rows = [
        StoredAnswer(
            key_text((key,)), outcome, None if answer is None else dump(answer), at, "before"
        )
        for key, outcome, answer, at in answers
    ]
    path = f"{folder.root}-index.arrow"
    write_index(path, as_table(rows))
    return path


class Settling(FunctionClient, SessionClient):
    """A client whose connections prove quiet only once `seen` is set, from another thread."""

    seen: threading.Event

    def tell_doubt(self, tell):
        pass

    def note_used_up(self, note):
        pass

    async def settle(self):
        await asyncio.to_thread(self.seen.wait)


@EVERYWHERE
def test_the_last_rows_leave_while_connections_are_still_checked_for_extra_responses(folder):
    seen = threading.Event()

    def client(asked, _share):
        made = Settling(asked)
        made.seen = seen
        return made

    planned = with_ledger(plan(lookup(Function())), folder, flush_rows=10**6, flush_seconds=3600.0)

    def consume():
        left = 0
        for out in PartitionRun(planned, 0, 0, client_for=client).run(iter(batches(100))):
            left += out.num_rows
            assert len(kept(folder)) >= left
            if left == 100:
                seen.set()
        return left

    assert in_time(consume) == 100


@EVERYWHERE
def test_an_answer_is_stored_before_the_batch_that_holds_its_row_leaves(folder):
    function = Function(answer=lambda key: [{"first_x": key}] if key % 3 else [])
    planned = with_ledger(plan(lookup(function)), folder)
    left = 0
    for out in PartitionRun(planned, 0, 0).run(iter(batches(2500))):
        stored = {answer.key: answer for answer in kept(folder)}
        for row in out.to_pylist():
            answer = stored[key_text((row["k"],))]
            assert answer.outcome == row[schema.status("first")]
            assert answer.response == (dump({"first_x": row["k"]}) if row["k"] % 3 else None)
        left += out.num_rows
    assert left == 2500 == len(kept(folder)) == function.calls


@EVERYWHERE
@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
@pytest.mark.parametrize("shared", [True, False])
def test_known_keys_are_not_called_and_leave_in_their_place(folder, mode, shared):
    function = Function(seconds=lambda key: 0.001)
    asked = lookup(function, **({} if shared else {"cache": None}))
    known = [(key, "ok", {"first_x": -key}, 1_000_000 + key) for key in range(0, 300, 2)]
    known += [(key, "miss", None, 2_000_000) for key in range(1, 300, 4)]
    options = {"order_key": ("k",)} if mode == "key_ordered" else {}
    planned = plan(asked, mode=mode, event_time="at", **options)
    rows = collected(
        with_ledger(planned, folder, index=index_of(folder, *known)), batches(400)
    ).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(400))
    if mode == "ordered":
        assert [row["id"] for row in rows] == list(range(400))
    watermarks = [row[schema.SEGMENT] for row in rows]
    assert watermarks == sorted(watermarks)
    from_ledger = {key: (outcome, at) for key, outcome, _, at in known}
    for row in rows:
        key = row["k"]
        outcome, at = from_ledger.get(key, ("ok", None))
        assert row["first_status"] == outcome
        assert row["first_x"] == (
            None if outcome == "miss" else -key if key in from_ledger else key
        )
        if key in from_ledger:
            assert row[schema.source("first")] == "ledger"
            assert (row[schema.attempts("first")], row[schema.latency_ms("first")]) == ([], None)
            assert row["first_answered_at"].timestamp() * 1e6 == pytest.approx(at)
        else:
            assert row[schema.source("first")] == "call"
    assert function.calls == 400 - len(known) == len(kept(folder))


@EVERYWHERE
def test_a_stored_answer_that_no_longer_fits_is_an_error_and_not_called_again(
    folder,
):
    function = Function()
    path = index_of(
        folder, (0, "ok", {"first_x": "green"}, 5), (1, "ok", ["a", "list"], 5), (2, "ok", {}, 5)
    )
    rows = collected(
        with_ledger(plan(lookup(function), mode="ordered"), folder, index=path), [batch(0, 3)]
    ).to_pylist()
    assert [row["first_status"] for row in rows] == ["error", "error", "ok"]
    assert all(
        row[schema.error("first")].startswith("the stored answer does not fit: ")
        for row in rows[:2]
    )
    assert rows[2]["first_x"] is None
    assert function.calls == 0


@EVERYWHERE
@pytest.mark.slow
def test_stored_answers_of_an_attempt_are_not_called_by_the_next_attempt(folder):
    request_counter.begin()  # as a task does, so that its threads count together
    function = Function(seconds=lambda key: 0.002)
    planned = with_ledger(plan(lookup(function), mode="ordered"), folder)
    first = PartitionRun(planned, 3, 0).run(iter(batches(5000)))
    before = in_time(lambda: next(first)).num_rows
    in_time(first.close)  # as a cancelled task: what came back is stored, the rest is not asked
    answered = len(kept(folder))
    assert before <= answered < 5000
    asked = function.calls
    table = in_time(
        lambda: pa.Table.from_batches(list(PartitionRun(planned, 3, 1).run(iter(batches(5000)))))
    )
    sources = table[schema.source("first")].to_pylist()
    assert sources.count("ledger") == answered
    assert request_counter.task_counts().earlier["first"] == answered  # they are calls of the day
    assert function.calls - asked == 5000 - answered
    assert table["first_x"].to_pylist() == list(range(5000))
    other = Function()
    # another task of the run
    collected(with_ledger(plan(lookup(other)), folder), [batch(0, 10)], number=4)
    assert other.calls == 10


@EVERYWHERE
@pytest.mark.slow
def test_errors_are_stored_for_their_time_to_live_and_fallbacks_never(folder):
    class Failing(Function):
        async def async_invoke(self, value):
            await super().async_invoke(value)
            if value["k"] == 9:
                await asyncio.sleep(30)
            raise ValueError("no such thing")

        def timeout(self, value):
            return [{"first_x": 7}]

    asked = lookup(Failing(), timeout=1.5, retry=Retry(retries=1, initial_delay=0.001))
    rows = collected(with_ledger(plan(asked, mode="ordered"), folder), [batch(0, 10)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["error"] * 9 + ["fallback"]
    assert kept(folder) == []
    ttl = Ttl(error=timedelta(hours=1))
    collected(with_ledger(plan(asked), folder, ttl=ttl), [batch(0, 10)])
    assert {answer.outcome for answer in kept(folder)} == {"error"}
    assert sorted(answer.key for answer in kept(folder)) == [f"[{key}]" for key in range(9)]
    before = asked.function().calls
    rows = collected(
        with_ledger(plan(asked, mode="ordered"), folder, ttl=ttl), [batch(0, 9)]
    ).to_pylist()
    assert asked.function().calls == before
    assert {(row["first_status"], row[schema.source("first")]) for row in rows} == {
        ("error", "ledger")
    }
    assert all("no such thing" in row[schema.error("first")] for row in rows)


def test_an_unwritable_ledger_ends_the_task_with_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    planned = with_ledger(
        plan(lookup(Function())), LedgerFolder(str(tmp_path / "file" / "ledger"), "first", "f")
    )
    with pytest.raises(LedgerError, match="answers cannot be stored") as error:
        collected(planned, batches(2000))
    assert "\n" not in str(error.value)


def test_rows_whose_answers_cannot_be_stored_do_not_leave_and_the_writer_ends(folder):
    planned = with_ledger(plan(lookup(Function(answer=lambda key: [{"first_x": 1}]))), folder)
    given = batch(0, 3)
    spans = given.set_column(
        given.schema.get_field_index("k"), "k", given["k"].cast(pa.duration("us"))
    )
    left = []
    with pytest.raises(LedgerError, match="answers cannot be stored: TypeError"):
        in_time(lambda: left.extend(PartitionRun(planned, 0, 0).run(iter([spans]))))
    assert left == []
    assert "ledger writer" not in {thread.name for thread in threading.enumerate()}


@EVERYWHERE
def test_keys_from_personal_columns_stand_hashed_in_the_ledger_and_are_found_again(folder):
    planned = plan(lookup(Function()))
    collected(with_ledger(planned, folder, hidden=True), [batch(0, 5)])
    assert all(answer.key.startswith("blake2b:") for answer in kept(folder))
    function = Function()
    rows = collected(
        with_ledger(plan(lookup(function)), folder, hidden=True), [batch(0, 5)]
    ).to_pylist()
    assert function.calls == 0
    assert {row[schema.source("first")] for row in rows} == {"ledger"}


@EVERYWHERE
def test_without_calls_a_key_without_an_answer_leaves_as_not_asked(folder):
    for cache in ({}, {"cache": None}):
        function = Function()
        path = index_of(folder, *((key, "ok", {"first_x": key}, 5) for key in range(3)))
        planned = dataclasses.replace(
            with_ledger(plan(lookup(function, **cache), mode="ordered"), folder, index=path),
            may_call=False,
        )
        rows = collected(planned, [batch(0, 5)]).to_pylist()
        assert [row["first_status"] for row in rows] == ["ok", "ok", "ok", "not_asked", "not_asked"]
        assert [row[schema.source("first")] for row in rows] == ["ledger"] * 3 + [None, None]
        assert function.calls == 0


@EVERYWHERE
@pytest.mark.parametrize("cache", [{}, {"cache": None}])
def test_a_cap_on_calls_stops_the_run_and_keeps_its_answers(folder, cache):
    function = Function(seconds=lambda key: 0.01)
    cap = CallCap("max_calls 60", parts=(50.0, 10.0), weights=(1.0,))
    planned = dataclasses.replace(with_ledger(plan(lookup(function, **cache)), folder), cap=cap)
    with pytest.raises(BudgetExhausted, match="max_calls 60 is used up: what was answered is kept"):
        collected(planned, batches(500))
    assert function.calls == 50 == len(kept(folder))
    # Spark tries again: it may not spend its part a second time
    with pytest.raises(BudgetExhausted):
        in_time(lambda: list(PartitionRun(planned, 0, 1).run(iter(batches(500)))))
    assert function.calls == 50


# -- calls that must not be made twice
# ---------------------------------------------------------------------------------


@EVERYWHERE
def test_a_call_that_must_not_be_made_twice_is_marked_before_it_is_made(folder):
    seen = []

    class Once(Function):
        async def async_invoke(self, value):
            marks = {answer.key for answer in kept(folder) if answer.outcome == "asked"}
            seen.append(key_text((value["k"],)) in marks)
            return await super().async_invoke(value)

    once = Once(seconds=lambda key: 0.001)
    asked = lookup(once, retry=NO_RETRY, idempotent=False)
    rows = collected(with_ledger(plan(asked), folder), batches(60, 20)).to_pylist()
    assert seen == [True] * 60
    assert {row["first_status"] for row in rows} == {"ok"}
    assert len(folder.parts(RUN)) < 60  # marks of calls that wait at the same time go into one part


def test_a_mark_is_on_the_disk_before_its_call_and_answers_are_not_waited_for(folder, monkeypatch):
    """A power cut takes what only the operating system has: the call would be made again."""
    synced, sync, lasting = [], os.fsync, []

    def noted(handle):
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)

    class Once(Function):
        async def async_invoke(self, value):
            text = key_text((value["k"],))
            (part,) = [
                part for part in folder.parts(RUN)
                if {"asked"} == {answer.outcome for answer in as_answers(folder.read([part]))
                                 if answer.key == text}
            ]  # fmt: skip
            file = Path(folder.path, "parts", part)
            lasting.append(
                {path.stat().st_ino for path in (file, *list(file.parents)[:6])} <= set(synced)
            )
            return await super().async_invoke(value)

    asked = lookup(Once(seconds=lambda key: 0.01), retry=NO_RETRY, idempotent=False)
    collected(with_ledger(plan(asked), folder), batches(20))
    assert lasting == [True] * 20
    synced.clear()
    collected(with_ledger(plan(lookup(Function())), folder, run_id="r2"), batches(20))
    assert folder.parts("r2")
    assert synced == []


def test_no_marked_call_leaves_in_a_pause_that_began_while_its_mark_was_stored(
    folder, service, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda _handle: time.sleep(0.15))  # a slow disk
    asked_at, throttled_at = [], []

    async def answer(request):
        asked_at.append(time.monotonic())
        if len(asked_at) > 1:
            return web.json_response({"first_x": 5})
        await asyncio.sleep(0.1)
        throttled_at.append(time.monotonic())
        return web.Response(status=429, headers={"Retry-After": "1"})

    service.answer = answer
    rows = collected(
        with_ledger(plan(http(service, idempotent=False), share=4), folder), [batch(0, 12)]
    ).to_pylist()
    assert [row["first_status"] for row in rows] == ["ok"] * 12
    assert [at for at in asked_at if 0.05 < at - throttled_at[0] < 0.95] == []
    assert sorted(Counter(service.log).values()) == [1] * 11 + [2]


@EVERYWHERE
def test_a_mark_without_an_answer_is_unknown_and_names_the_run_that_called(folder):
    once = Function()
    asked = lookup(once, retry=NO_RETRY, idempotent=False)
    path = index_of(folder, (1, "asked", None, 1_700_000_000_000_000), (2, "ok", {"first_x": 2}, 5))
    rows = collected(
        with_ledger(plan(asked, mode="ordered"), folder, index=path), [batch(0, 3)]
    ).to_pylist()
    assert [row["first_status"] for row in rows] == ["ok", "unknown", "ok"]
    assert [row[schema.source("first")] for row in rows] == ["call", None, "ledger"]
    assert rows[1][schema.error("first")].startswith(
        "run before asked at 2023-11-14 22:13:20 UTC, and its answer is"
    )
    assert once.calls == 1


@EVERYWHERE
def test_an_equal_row_of_a_call_that_failed_and_must_not_be_made_twice_is_unknown(folder):
    def fail(key):
        raise ValueError("the line is dead")

    once = Function(answer=fail)
    asked = lookup(once, retry=NO_RETRY, idempotent=False)
    planned = with_ledger(plan(asked, mode="ordered", share=1), folder)
    rows = collected(planned, [batch(0, 40, keys=[7] * 40)]).to_pylist()
    assert once.calls == 1
    assert {row["first_status"] for row in rows} <= {"error", "unknown"}
    assert [answer.outcome for answer in kept(folder)] == ["asked"]


# -- a real service
# --------------------------------------------------------------------------------------------------


def http(service, **fields):
    geo = Service(name="geo", url=service.url, max_concurrency=4)
    standard = {"keys": {"k": "k"}, "returns": "first_x BIGINT", "timeout": 5.0, "retry": NO_RETRY}
    return HttpLookup(
        **{"name": "first", "service": geo, "request": "GET /{k}"} | standard | fields
    )


@EVERYWHERE
def test_an_answer_that_comes_after_its_row_left_is_kept_also_at_the_end_of_the_task(
    folder, service
):
    async def slow(request):
        await asyncio.sleep(2.5 if request.path == "/1" else 0.0)
        return web.json_response({"first_x": 5})

    service.answer = slow
    late = http(service, timeout=1.0, attempt_timeout=10.0, finish_after_timeout=True)
    rows = collected(with_ledger(plan(late, mode="ordered"), folder), [batch(0, 2)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["ok", "timeout"]
    assert sorted(answer.key for answer in kept(folder)) == ["[0]", "[1]"]
    needs_retry = collected(
        with_ledger(plan(late, mode="ordered"), folder), [batch(0, 2)]
    ).to_pylist()
    assert [(row["first_status"], row[schema.source("first")]) for row in needs_retry] == [
        ("ok", "ledger")
    ] * 2
    assert len(service.log) == 2


@EVERYWHERE
def test_denied_access_and_throttling_are_never_stored(folder, service):
    turns = itertools.count()

    async def moody(request):
        turn = next(turns)
        if turn == 0:
            return web.Response(status=429, headers={"Retry-After": "0.01"})
        return web.json_response({"first_x": 5}) if turn < 10 else web.Response(status=401)

    service.answer = moody
    with pytest.raises(AccessRefused, match="denies access: 401"):
        collected(with_ledger(plan(http(service), share=1), folder), [batch(0, 50)])
    assert {answer.outcome for answer in kept(folder)} == {"ok"}
    assert len(kept(folder)) == 9


@EVERYWHERE
def test_a_throttled_call_removes_its_mark_and_is_repeated(folder, service):
    turns = itertools.count()

    async def busy(request):
        if next(turns) % 2 == 0:
            return web.Response(status=429, headers={"Retry-After": "0.01"})
        return web.json_response({"first_x": 5})

    service.answer = busy
    once = http(service, idempotent=False)
    rows = collected(with_ledger(plan(once, share=1), folder), [batch(0, 5)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["ok"] * 5
    assert len(service.log) == 10


def outcomes_of(folder):
    """The outcome of a key's records that counts, by key."""
    records = effective_records(folder.read(folder.parts(RUN)))
    return {answer.key: answer.outcome for answer in as_answers(records)}


@pytest.mark.parametrize("batched", [False, True])
def test_a_run_that_ends_by_throttling_settles_the_marks_of_throttled_calls(
    folder, service, batched
):
    async def busy(request):
        if len(service.log) == 1:
            body = {"first_x": 5, "k": 0}
            return web.json_response([body] if batched else body)
        return web.Response(status=429, headers={"Retry-After": "3600"})

    service.answer = busy
    once = http(service, idempotent=False, **(BATCH_OF_ONE if batched else {}))
    outage = Outage(wait_at_most=timedelta(seconds=90))
    once = dataclasses.replace(once, service=dataclasses.replace(once.service, outage=outage))
    with pytest.raises(RunStopped, match="has throttled calls"):
        collected(with_ledger(plan(once, share=1), folder), [batch(0, 5)])
    assert outcomes_of(folder) == {"[0]": "ok"}


def test_a_call_that_ends_before_it_is_sent_settles_its_mark(folder, service, monkeypatch):
    synced = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _handle: synced.wait(1.0))  # a slow disk
    once = http(service, idempotent=False, timeout=0.2)
    rows = collected(with_ledger(plan(once), folder), [batch(0, 3)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["timeout"] * 3
    assert service.log == []
    assert outcomes_of(folder) == {}


@pytest.mark.parametrize("kind", ["call", "batch", "pages"])
def test_a_refused_connection_settles_the_mark_of_its_call(folder, service, kind):
    fields = {
        "call": {},
        "batch": BATCH_OF_ONE,
        "pages": {"pages": Pages(next="$.next", max_pages=3)},
    }[kind]
    once = http(service, idempotent=False, **fields)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    once = dataclasses.replace(once, service=dataclasses.replace(once.service, url=url))
    rows = collected(with_ledger(plan(once), folder), [batch(0, 1)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["error"]
    assert outcomes_of(folder) == {}


@pytest.mark.parametrize("status", [200, 404, 429])
def test_a_later_page_that_is_refused_leaves_the_mark_of_its_call(folder, service, status):
    async def answer(request):
        if "page" in request.query and len(service.log) == 2:
            body = {"error": "no credit"}
            return web.json_response(body, status=status, headers={"Retry-After": "0.01"})
        return web.json_response({"next": None if "page" in request.query else "?page=2"})

    service.answer = answer
    paged = http(
        service,
        idempotent=False,
        pages=Pages(next="$.next", max_pages=3),
        returns="first_x ARRAY<BIGINT>",
        error_when=["$.error"],
    )
    rows = collected(with_ledger(plan(paged), folder), [batch(0, 1)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["error"]
    assert len(service.log) == 2
    assert outcomes_of(folder) == {"[0]": "asked"}


def test_a_call_that_is_not_sent_leaves_the_mark_of_an_earlier_call(folder):
    planned = with_ledger(plan(lookup(Function(), retry=NO_RETRY, idempotent=False)), folder)
    ledger = TaskLedger(planned.ledgers[0], 0, 0, lambda: time.time_ns() // 1000)
    watch = CircuitBreaker(Outage(), "geo", Gate(), lambda: 0)

    async def ask(key):
        return {"first_x": key}

    async def main():
        ledger.open()
        marks = Marks(ledger, watch)
        await marks.before_call(ask, (1,))
        watch.pause(1.0, down=False)
        for key in (1,), (2,):
            with pytest.raises(NotSent):
                await marks.before_call(ask, key)
        ledger.close()

    asyncio.run(main())
    assert outcomes_of(folder) == {"[1]": "asked"}


DEEP = reduce(lambda inner, _: {"a": inner}, range(150), {})
NOT_TOLD = {
    "nested too deeply for its condition": web.json_response(DEEP),
    "an item nested too deeply for its condition": web.json_response([DEEP | {"k": 0}]),
    "not JSON": web.Response(text="<html>", content_type="application/json"),
    "no body": web.Response(text="", content_type="application/json"),
    "too large": web.json_response({"first_x": "9" * 100_000}),
    "an item left out": web.json_response([]),
    "accepted, not answered": web.json_response({"first_x": 5}, status=202),
    "a failure": web.Response(status=500),
}


@pytest.mark.parametrize("case", NOT_TOLD)
def test_an_answer_that_leaves_the_outcome_open_leaves_the_mark_of_its_call(folder, service, case):
    answer = NOT_TOLD[case]

    async def unclear(request):
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    service.answer = unclear
    fields = BATCH_OF_ONE if case.startswith("an item") else {}
    if "condition" in case:
        fields = fields | {"miss_when": ["$..gone"]}
    once = http(service, idempotent=False, max_answer_bytes=10_000, **fields)
    rows = collected(with_ledger(plan(once), folder), [batch(0, 1)]).to_pylist()
    assert [row["first_status"] for row in rows] == ["error"]
    assert [answer.outcome for answer in kept(folder)] == ["asked"]
    assert len(service.log) == 1


def test_an_error_that_is_kept_for_a_while_leaves_the_mark_of_a_call_that_may_have_acted(
    folder, service
):
    async def fails(request):
        return web.Response(status=500)

    service.answer = fails
    once = http(service, idempotent=False)
    kept_errors = Ttl(error=timedelta(days=1))
    collected(with_ledger(plan(once), folder, ttl=kept_errors), [batch(0, 1)])
    assert [answer.outcome for answer in kept(folder)] == ["asked"]


def test_a_refusal_settles_the_mark_of_its_call(folder, service):
    async def refuse(request):
        return web.json_response({"error": "no such article"}, status=422)

    service.answer = refuse
    collected(with_ledger(plan(http(service, idempotent=False)), folder), [batch(0, 1)])
    assert [answer.outcome for answer in kept(folder)] == ["asked", "error"]


@pytest.mark.parametrize("batched", [False, True])
def test_denied_access_settles_the_marks_of_all_calls_that_it_refused(folder, service, batched):
    async def deny(request):
        number = len(service.log)
        await asyncio.sleep(0.1 * number)
        if number == 2:
            body = {"first_x": 5, "k": 1}
            return web.json_response([body] if batched else body)
        return web.Response(status=403)

    service.answer = deny
    once = http(service, idempotent=False, **(BATCH_OF_ONE if batched else {}))
    with pytest.raises(AccessRefused, match="denies access: 403"):
        collected(with_ledger(plan(once), folder), [batch(0, 50)])
    calls = len(service.log)
    assert calls == 4
    outcomes = Counter(answer.outcome for answer in kept(folder))
    assert outcomes == {"asked": calls, "expired": calls - 1, "ok": 1}


def test_denied_access_leaves_the_mark_of_a_call_whose_answer_does_not_come(folder, service):
    async def deny(request):
        if len(service.log) == 2:
            await asyncio.sleep(30)
        while len(service.log) < 2:  # noqa: ASYNC110  # until both calls are in flight
            await asyncio.sleep(0.01)
        return web.Response(status=403)

    service.answer = deny
    once = http(service, idempotent=False, timeout=60.0)
    with pytest.raises(AccessRefused, match="denies access: 403"):
        collected(with_ledger(plan(once, share=2), folder), [batch(0, 50)])
    assert Counter(answer.outcome for answer in kept(folder)) == {"asked": 2, "expired": 1}


def test_a_task_that_fails_first_stores_the_answers_of_its_calls_in_flight(folder, service):
    async def answer(request):
        if request.path == "/0":
            return web.Response(status=402)
        await asyncio.sleep(0.3)
        return web.json_response({"first_x": 5})

    service.answer = answer
    with pytest.raises(AccessRefused, match="denies access: 402"):
        collected(with_ledger(plan(http(service), share=3), folder), [batch(0, 50)])
    assert sorted(answer.key for answer in kept(folder)) == ["[1]", "[2]"]
    assert len(service.log) == 3


@pytest.mark.parametrize("kind", [AccessRefused, RowFailed])
def test_a_task_ended_by_another_task_first_stores_the_answers_of_its_calls_in_flight(
    folder, service, kind
):
    async def answer(request):
        if request.path == "/2":
            run.fail(kind("as another task found"))
        await asyncio.sleep(0.3)
        return web.json_response({"first_x": 5})

    service.answer = answer
    run = PartitionRun(with_ledger(plan(http(service), share=3), folder), 0, 0)
    with pytest.raises(kind, match="as another task found"):
        list(run.run(iter([batch(0, 50)])))
    assert sorted(answer.key for answer in kept(folder)) == ["[0]", "[1]", "[2]"]
    assert len(service.log) == 3


def test_a_stop_status_after_possible_work_leaves_the_mark(folder, service):
    async def fail(request):
        return web.Response(status=500)

    service.answer = fail
    once = http(service, idempotent=False)
    stopping = dataclasses.replace(once.service, stop_on=(403, 500))
    once = dataclasses.replace(once, service=stopping)
    with pytest.raises(AccessRefused, match="denies access: 500"):
        collected(with_ledger(plan(once, share=1), folder), [batch(0, 5)])
    assert [answer.outcome for answer in kept(folder)] == ["asked"]
