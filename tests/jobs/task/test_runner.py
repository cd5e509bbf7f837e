"""One partition without Spark: record batches in, every row out once, whatever happens in
between.
"""

import asyncio
import dataclasses
import gc
import itertools
import sqlite3
import threading
import time
from contextvars import copy_context
from datetime import timedelta

import pyarrow as pa
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core import AsyncFunction
from jobs.errors import RowFailed, RunStopped, TidegateError
from jobs.schema import columns as schema
from jobs.task import row_flow, runner
from jobs.task.chain import CAPACITY_PER_CALL, Link
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import PartitionRun
from jobs.task.threads.read_ahead import InputWindow
from tests.support.examples import examples
from tidegate import AsyncFunctionLookup, HttpLookup, Outage, Retry, Service, SqlLookup

SECONDS = 60  # after which a run that has not ended is taken for hung; nothing here takes long


def answered(key):
    """One answer for a lookup of any of the names that these tests use."""
    return [dict.fromkeys(("first_x", "l0_x", "l1_x", "l2_x", "a_x", "b_x"), key)]


class Function(AsyncFunction):
    """A user's function that answers with its key, as slowly as it is told, and counts what
    runs.
    """

    def __init__(self, seconds=lambda key: 0.0, answer=answered):
        self.seconds, self.answer = seconds, answer
        self.calls, self.running, self.highest, self.cancelled, self.closed = 0, 0, 0, 0, 0

    async def async_invoke(self, value):
        (key,) = value.values()
        self.calls += 1
        self.running += 1
        self.highest = max(self.highest, self.running)
        try:
            await asyncio.sleep(self.seconds(key))
            return self.answer(key)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def stands_after(self, count):
        """The condition that `count` calls have ended and four run; four run at moments before
        that, too.
        """
        return lambda: (self.calls, self.running) == (count + 4, 4)

    def close(self):
        self.closed += 1


def lookup(function, name="first", **fields):
    standard = {
        "name": name, "keys": {"k": "k"}, "returns": f"{name}_x BIGINT", "timeout": 30.0,
        "max_concurrency": 4, "function": lambda: function,
        "retry": Retry(retries=1, initial_delay=0.001, jitter=0.0),
    }  # fmt: skip
    return AsyncFunctionLookup(**standard | fields)


def plan(*lookups, mode="unordered", share=4, event_time=None, bound_ms=0, key="k", order_key=()):
    layout = BatchLayout(
        carried=("id", "k", "at", "payload", schema.SOURCE_FILE, schema.SOURCE_ROW),
        keys=((key,),) * len(lookups), order_key=order_key, event_time=event_time,
        max_out_of_orderness_ms=bound_ms, lookups=tuple(declared.name for declared in lookups),
        answers=tuple(declared.columns for declared in lookups),
    )  # fmt: skip
    return PartitionPlan(
        lookups=lookups, shares=((share,),) * len(lookups), mode=mode, layout=layout, progress=None
    )


def batch(start, count, *, keys=None, times=None, payload=b""):
    ids = range(start, start + count)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array(ids if keys is None else keys, pa.int64()),
            "at": pa.array([n * 1000 for n in ids] if times is None else times, pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "payload": pa.array([payload] * count, pa.binary()),
            schema.SOURCE_FILE: pa.array(["file:///a"] * count, pa.string()),
            schema.SOURCE_ROW: pa.array(ids, pa.int64()),
        }
    )


def batches(rows, size=50):
    return [batch(start, min(size, rows - start)) for start in range(0, rows, size)]


def in_time(work):
    """What `work` returns or raises, from a thread of its own, lest a hung run hangs the tests."""
    found = {}

    def run():
        try:
            found["value"] = work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
            found["error"] = error

    # with the test's counts of requests
    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "the run hangs"
    if "error" in found:
        raise found["error"]
    return found["value"]


def collected(plan, given, number=0):
    """All rows that leave the partition, as one table."""
    return in_time(
        lambda: pa.Table.from_batches(list(PartitionRun(plan, number, 0).run(iter(given))))
    )


EARLIER = set()  # threads that tests before left on purpose, as of functions that never end


def ours():
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("tidegate-") and thread not in EARLIER
    ]


@pytest.fixture(autouse=True)
def no_thread_is_left(wait_for):
    EARLIER.update(threading.enumerate())
    yield
    wait_for(lambda: not ours())


# -- every row once
# --------------------------------------------------------------------------------------------------
def uneven(key):
    return (key * 7919 % 13) / 4000


@pytest.mark.parametrize("mode", ["ordered", "unordered", "key_ordered"])
@pytest.mark.parametrize("event_time", [None, "at"])
def test_every_row_leaves_once_with_its_answer_in_every_mode(mode, event_time):
    asked = plan(
        lookup(Function(uneven)), mode=mode, event_time=event_time, bound_ms=100,
        order_key=("k",) if mode == "key_ordered" else (),
    )  # fmt: skip
    out = collected(asked, batches(400))
    assert sorted(out.column("id").to_pylist()) == list(range(400))
    assert out.column("first_x").to_pylist() == out.column("id").to_pylist()
    assert out.column(schema.OUTPUT_SEQ).to_pylist() == list(range(400))
    if mode == "ordered":
        assert out.column("id").to_pylist() == list(range(400))


def test_unordered_rows_overtake_each_other_but_never_a_watermark():
    times = [n * 1_000_000 for n in range(10) for _ in range(20)]
    given = [batch(0, 200, times=times)]
    out = collected(plan(lookup(Function(uneven)), event_time="at", share=20), given)
    segments = out.column(schema.SEGMENT).to_pylist()
    assert segments == sorted(segments)
    assert out.column("id").to_pylist() != list(range(200))
    assert len(set(segments)) == 11  # the first row of each second raises the watermark behind it


def test_rows_of_a_key_keep_their_order_and_other_rows_may_overtake_them():
    keys = [n % 7 for n in range(210)]
    function = Function(lambda key: 0.004 if key == 0 else 0.0)
    out = collected(
        plan(lookup(function), mode="key_ordered", order_key=("k",), share=10),
        [batch(0, 210, keys=keys)],
    )
    left = list(zip(out.column("k").to_pylist(), out.column("id").to_pylist(), strict=True))
    for key in range(7):
        assert [n for k, n in left if k == key] == list(range(key, 210, 7))
    assert [n for _, n in left] != list(range(210))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([float("nan"), None, 1.5]),
        pa.array([{"a": float("nan")}, {"a": None}, None]),
        pa.array([[1], [], None]),
        pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    ],
    ids=["numbers", "structs", "lists", "maps"],
)
def test_rows_of_a_key_of_any_type_keep_their_order(values):
    keys = values.take(pa.array([n % 3 for n in range(90)]))
    given = batch(0, 90)
    given = given.set_column(given.schema.names.index("payload"), "payload", keys)
    asked = plan(lookup(Function(uneven)), mode="key_ordered", order_key=("payload",), share=10)
    left = collected(asked, [given]).column("id").to_pylist()
    for first in range(3):
        assert [n for n in left if n % 3 == first] == list(range(first, 90, 3))
    assert left != list(range(90))


@pytest.mark.slow
@examples(15)
@given(
    sizes=st.lists(st.integers(0, 40), max_size=8),
    mode=st.sampled_from(["ordered", "unordered"]),
    share=st.sampled_from([1, 2, 7]),
    chain=st.integers(1, 3),
    every=st.sampled_from([1, 3, 1000]),
)
def test_every_row_leaves_once_however_the_input_is_cut(sizes, mode, share, chain, every):
    starts = itertools.accumulate(sizes, initial=0)
    given_batches = [batch(start, size) for start, size in zip(starts, sizes, strict=False)]
    asked = plan(
        *(lookup(Function(), f"l{n}") for n in range(chain)),
        mode=mode,
        share=share,
        event_time="at",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_flow, "ROWS_PER_BATCH", every)
        found = in_time(lambda: list(PartitionRun(asked, 0, 0).run(iter(given_batches))))
    ids = [n for out in found for n in out.column("id").to_pylist()]
    assert sorted(ids) == list(range(sum(sizes)))
    assert all(out.num_rows > 0 for out in found)
    for n in range(chain):
        assert [x for out in found for x in out.column(f"l{n}_x").to_pylist()] == ids


def test_an_empty_partition_gives_no_row():
    function = Function()
    assert in_time(lambda: list(PartitionRun(plan(lookup(function)), 0, 0).run(iter([])))) == []
    assert (
        in_time(lambda: list(PartitionRun(plan(lookup(function)), 0, 0).run(iter([batch(0, 0)]))))
        == []
    )
    assert function.closed == 2


def test_a_null_key_is_skipped_and_a_null_time_is_not_late():
    given = [
        batch(0, 6, keys=[0, None, 2, None, 4, 5], times=[10_000, None, 5_000, 1_000, None, 20_000])
    ]
    out = collected(plan(lookup(Function()), mode="ordered", event_time="at"), given)
    assert out.column("first_status").to_pylist() == ["ok", "skipped", "ok", "skipped", "ok", "ok"]
    assert out.column("first_x").to_pylist() == [0, None, 2, None, 4, 5]
    assert out.column(schema.LATE).to_pylist() == [False, False, True, True, False, False]
    assert out.column(schema.SEGMENT).to_pylist() == [0, 1, 1, 1, 1, 1]
    assert out.column("first_answered_at").null_count == 2


def test_calls_stay_within_the_share_of_the_partition():
    function = Function(lambda key: 0.002)
    asked = plan(lookup(function))
    asked = PartitionPlan(asked.lookups, ((5, 3),), asked.mode, asked.layout, None)
    collected(asked, batches(60), number=1)
    assert function.highest == 3


# -- several lookups
# --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_chained_lookups_work_side_by_side_and_each_answers_every_row(mode):
    functions = [Function(lambda key: 0.002) for _ in range(3)]
    together = []
    for function in functions:
        function.answer = lambda key: (
            together.append([f.running for f in functions]) or answered(key)
        )
    asked = plan(*(lookup(f, f"l{n}") for n, f in enumerate(functions)), mode=mode)
    out = collected(asked, batches(200))
    for n in range(3):
        assert out.column(f"l{n}_x").to_pylist() == out.column("id").to_pylist()
        assert functions[n].calls == 200
    assert any(all(running) for running in together)


@pytest.mark.slow
def test_a_slow_last_lookup_holds_back_the_first_one():
    first, last = Function(), Function(lambda key: 0.0005)
    ahead = []
    last.answer = lambda key: ahead.append(first.calls - last.calls) or answered(key)
    out = collected(plan(lookup(first, "a"), lookup(last, "b"), share=2), batches(6000, 1000))
    assert out.num_rows == 6000
    capacity = 2 * 2 * CAPACITY_PER_CALL
    assert max(ahead) <= Link.BOUND + capacity + 2 * 2


def test_an_http_lookup_and_a_database_in_one_pass(service, tmp_path):
    with sqlite3.connect(tmp_path / "p.db") as planes:
        planes.executescript("CREATE TABLE planes (tail INTEGER, seats INTEGER)")
        planes.executemany(
            "INSERT INTO planes VALUES (?, ?)", [(n, n * 2) for n in range(0, 100, 2)]
        )
    planes.close()
    weather = HttpLookup(
        name="weather", service=Service(name="w", url=service.url, max_concurrency=4),
        request="GET /{k}", keys={"k": "k"}, returns="temp_c DOUBLE", timeout=30.0,
    )  # fmt: skip
    plane = SqlLookup(
        name="plane", url=f"sqlite+aiosqlite:///{tmp_path}/p.db", table="planes",
        keys={"tail": "k"}, returns="seats INT", timeout=30.0, max_concurrency=4,
    )  # fmt: skip
    out = collected(plan(weather, plane, mode="ordered"), batches(100))
    assert out.column("temp_c").to_pylist() == [3.9] * 100
    assert out.column("seats").to_pylist() == [None if n % 2 else n * 2 for n in range(100)]
    assert out.column("plane_status").to_pylist() == ["miss" if n % 2 else "ok" for n in range(100)]
    assert sorted(service.log) == sorted(f"/{n}" for n in range(100))
    assert service.highest_in_flight <= 4


# -- the window
# --------------------------------------------------------------------------------------------------
class Source:
    """An input iterator that knows how far it was pulled."""

    def __init__(self, given, fails=None):
        self.given, self.fails, self.pulled, self.closed = given, fails, 0, False

    def __iter__(self):
        for pulled in self.given:
            self.pulled += pulled.num_rows
            yield pulled
        if self.fails is not None:
            raise self.fails


@pytest.mark.parametrize(("rows", "share"), [(1, 1), (10, 2), (200, 4)])
def test_the_input_is_read_ahead_at_most_the_window_and_a_batch(monkeypatch, wait_for, rows, share):
    monkeypatch.setattr(runner, "PREFETCH_ROWS", rows)
    monkeypatch.setattr(row_flow, "ROWS_PER_BATCH", 10)
    source = Source(batches(2000, 20))
    window = rows + CAPACITY_PER_CALL * share
    taken = 0

    def consume():
        nonlocal taken
        for out in PartitionRun(plan(lookup(Function()), share=share), 0, 0).run(iter(source)):
            # out batch in the window's door, out behind it
            assert source.pulled - taken <= window + 20 + 20
            taken += out.num_rows
        return taken

    assert in_time(consume) == 2000


@pytest.mark.slow
def test_rows_of_a_megabyte_are_bounded_in_bytes_and_do_not_stop_the_run(monkeypatch):
    size = 1 << 20
    monkeypatch.setattr(runner, "PREFETCH_BYTES", 8 * size)
    source = Source(batch(start, 4, payload=bytes(size)) for start in range(0, 80, 4))
    taken, highest = 0, 0

    def consume():
        nonlocal taken, highest
        for out in PartitionRun(
            plan(lookup(Function(lambda key: 0.001)), mode="ordered"), 0, 0
        ).run(iter(source)):
            highest = max(highest, source.pulled - taken)
            taken += out.num_rows
        return taken

    assert in_time(consume) == 80
    assert highest <= 8 + 4 + 4


def test_a_single_batch_larger_than_the_whole_window_goes_through(monkeypatch):
    monkeypatch.setattr(runner, "PREFETCH_BYTES", 1000)
    monkeypatch.setattr(runner, "PREFETCH_ROWS", 1)
    given = [batch(start, 300, payload=bytes(5000)) for start in (0, 300)]
    assert collected(plan(lookup(Function()), share=1), given).num_rows == 600


def test_a_reader_that_waits_for_room_is_released_when_the_run_ends():
    window = InputWindow(1, 1000)
    assert window.take(5, 10)
    waiting = threading.Thread(target=lambda: found.append(window.take(1, 1)), daemon=True)
    found = []
    waiting.start()
    window.end()
    waiting.join(10)
    assert found == [False]


# -- ends
# --------------------------------------------------------------------------------------------------
class OwnError(Exception):
    pass


def test_an_error_of_the_input_is_raised_unchanged():
    function = Function()
    with pytest.raises(OwnError, match="the disk is gone"):
        collected(plan(lookup(function)), Source(batches(60), fails=OwnError("the disk is gone")))
    assert function.closed == 1
    assert function.running == 0


@pytest.fixture
def usual_collector(monkeypatch):
    """The collector as in a process without a run; abandoned runs of other tests hold theirs."""
    monkeypatch.setattr(runner, "_thresholds", [])
    held = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*held)


@pytest.mark.usefixtures("usual_collector")
def test_the_last_of_overlapping_runs_restores_the_thresholds_of_the_collector():
    before = gc.get_threshold()
    first, second = runner.rare_collections(), runner.rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() != before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_an_abandoned_run_cancels_its_calls_and_leaves_no_thread(monkeypatch, wait_for):
    monkeypatch.setattr(row_flow, "ROWS_PER_BATCH", 1)
    function = Function(lambda key: 0.0 if key < 10 else 1000.0)
    endless = (batch(start, 10) for start in itertools.count(0, 10))

    def leave():
        rows = PartitionRun(plan(lookup(function)), 0, 0).run(endless)
        next(rows)
        wait_for(function.stands_after(10))
        rows.close()

    in_time(leave)
    wait_for(lambda: not ours())
    assert function.cancelled == 4
    assert function.running == 0
    assert function.closed == 1


def test_a_run_that_never_begins_makes_no_call():
    function = Function()
    rows = PartitionRun(plan(lookup(function)), 0, 0).run(iter(batches(10)))
    rows.close()
    assert function.calls == 0
    del rows
    gc.collect()  # what is left unclosed would warn here, and a warning fails a test


def test_a_slow_source_does_not_hold_back_finished_rows():
    function = Function()
    given = threading.Event()

    def slowly():
        yield batch(0, 3)
        assert given.wait(SECONDS)
        yield batch(3, 3)

    def consume():
        rows = PartitionRun(plan(lookup(function)), 0, 0).run(slowly())
        first = next(rows)
        given.set()
        return first.num_rows + sum(written.num_rows for written in rows)

    assert in_time(consume) == 6


def test_a_row_that_fails_by_policy_reaches_the_caller_with_its_message():
    with pytest.raises(
        RowFailed,
        match=(
            r"^lookup first: a row .* on_miss is 'fail'\. It is row 7 of file:///a "
            r"\(the first is 0\)\.$"
        ),
    ):
        collected(
            plan(lookup(Function(answer=lambda key: [] if key == 7 else None), on_miss="fail")),
            batches(60),
        )


def stops(key):
    raise RunStopped("geo at http://geo denies access: 403 Forbidden.")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_stopped_run_raises_the_message_of_the_lookup_that_stopped_it(place):
    functions = [Function(answer=stops) if n == place else Function() for n in range(3)]
    with pytest.raises(RunStopped, match=r"^geo at http://geo denies access: 403 Forbidden\.$"):
        collected(plan(*(lookup(f, f"l{n}") for n, f in enumerate(functions))), batches(600))
    assert [f.closed for f in functions] == [1, 1, 1]


def test_a_run_is_stopped_while_its_input_is_awaited(wait_for):
    released = threading.Event()

    def stuck():
        yield batch(0, 1)
        released.wait(SECONDS)

    try:
        with pytest.raises(RunStopped):
            collected(plan(lookup(Function(answer=stops))), stuck())
    finally:
        released.set()


def test_an_outage_stops_the_run_with_the_services_name(service):
    weather = HttpLookup(
        name="weather", request="GET /{k}", keys={"k": "k"}, returns="temp_c DOUBLE", timeout=30.0,
        service=Service(
            name="weather_api", url="http://127.0.0.1:1", max_concurrency=4,
            outage=Outage(after=3, probe_every=timedelta(seconds=0.05), wait_at_most=timedelta(seconds=0.2)),
        ),
    )  # fmt: skip
    with pytest.raises(
        RunStopped,
        match=(
            r"^weather_api at 127.0.0.1:1 stopped answering at "
            r"\d\d:.* gave up\.$"
        ),
    ):
        collected(plan(weather), batches(60))


def test_lookups_of_one_service_share_its_gate(service):
    calls = []

    async def answer(request):
        calls.append((asyncio.get_running_loop().time(), request.path))
        if request.path == "/b/5" and [path for _, path in calls].count("/b/5") == 1:
            return web.json_response({}, status=429, headers={"Retry-After": "1"})
        return web.json_response({"x": 1})

    service.answer = answer
    both = Service(name="geo", url=service.url, max_concurrency=2)
    asked = [
        HttpLookup(
            name=name, service=both, request=f"GET /{name}/{{k}}", keys={"k": "k"},
            returns=f"{name}_x INT", paths={f"{name}_x": "$.x"}, timeout=30.0,
        )
        for name in "ab"
    ]  # fmt: skip
    out = collected(plan(*asked, share=1, mode="ordered"), batches(30))
    assert out.column("a_x").to_pylist() == out.column("b_x").to_pylist() == [1] * 30
    limited = next(time for time, path in calls if path == "/b/5")
    during = [path for time, path in calls if limited < time < limited + 0.95]
    # on their way when the first of the two heard of it; the other had two dozen rows left
    assert len(during) <= 2


def test_a_function_that_breaks_at_construction_or_opening_ends_the_run_by_its_lookups_name():
    def broken():
        raise OwnError("no model file")

    class Unopened(Function):
        def open(self, runtime_context):
            raise OwnError("no licence")

    with pytest.raises(
        TidegateError,
        match=(
            r"^lookup first: its function cannot be made: "
            r"OwnError: no model file \(tests/jobs/task/test_runner.py:\d+\)$"
        ),
    ):
        collected(plan(dataclasses.replace(lookup(None), function=broken)), batches(5))
    function = Unopened()
    with pytest.raises(
        TidegateError,
        match=(
            r"^lookup first: its function cannot be opened: "
            r"OwnError: no licence \(tests/jobs/task/test_runner.py:\d+\)$"
        ),
    ):
        collected(plan(lookup(function)), batches(5))
    assert function.closed == 1


def test_rows_that_always_fail_are_not_an_outage_although_only_they_remain():
    def odd(key):
        if key >= 190:
            raise ValueError("broken row")
        return answered(key)

    function = Function(answer=odd)
    out = collected(
        plan(lookup(function, retry=Retry(retries=5, initial_delay=0.001, max_delay=0.001))),
        batches(200),
    )
    assert sorted(out.column("first_status").to_pylist()) == ["error"] * 10 + ["ok"] * 190
    assert function.calls == 190 + 10 * 6


def test_an_error_of_a_call_affects_only_its_row():
    def odd(key):
        if key % 2:
            raise ValueError(f"{key} is odd\nvery odd")
        return answered(key)

    out = collected(plan(lookup(Function(answer=odd)), mode="ordered"), batches(20))
    assert out.column("first_status").to_pylist() == ["ok", "error"] * 10
    error = out.column("_first_error").to_pylist()[1]
    assert error.startswith("ValueError: 1 is odd very odd (tests/jobs/task/test_runner.py:")
    attempts = out.column("_first_attempts").to_pylist()
    assert [len(attempt) for attempt in attempts] == [1, 2] * 10
    assert all(attempt["start"] <= attempt["end"] for row in attempts for attempt in row)


def test_attempt_times_lie_within_the_wall_clock_of_the_run():
    before = time.time_ns() // 1000
    out = collected(plan(lookup(Function(lambda key: 0.001))), batches(5))
    after = time.time_ns() // 1000
    for row in out.to_pylist():
        (attempt,) = row["_first_attempts"]
        assert before - 1000 <= attempt["start"] <= attempt["end"] <= after + 1000
        assert row["_first_latency_ms"] >= 1.0


class Unreadable(dict):
    def get(self, name):
        raise KeyError(f"no {name} today")


def test_a_bug_in_a_functions_result_is_reported_without_the_row():
    with pytest.raises(KeyError, match="no first_x today"):
        in_time(
            lambda: list(
                PartitionRun(plan(lookup(Function(answer=lambda _: [Unreadable()]))), 0, 0).run(
                    iter(batches(3))
                )
            )
        )
