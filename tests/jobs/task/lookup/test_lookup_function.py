"""From a call to an outcome: every row leaves with one, whatever its call does. Virtual time, the
real operator.
"""

import asyncio
import re
import time
from dataclasses import asdict
from datetime import timedelta

import pytest

from asyncio_core import (
    AsyncFunction,
    AsyncInvokeError,
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamRecord,
    exponential_backoff,
)
from asyncio_core.testing import run_virtual
from jobs.clients.client import CallFailed, Throttled
from jobs.clients.registry import client_for
from jobs.errors import DeclarationError, RowFailed, RunStopped, TidegateError
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.error_text import user_facing_error
from jobs.task.lookup.lookup_function import LookupFunction, needs_retry
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.wording import one_line
from tidegate import AsyncFunctionLookup, Outage, Retry


class Scripted(AsyncFunction):
    """A user's function that does for each key what a script says, attempt by attempt; the last
    step is repeated.
    """

    def __init__(self, script, timeouts=None):
        self.script = script
        self.timeouts = timeouts or {}
        self.attempts = {}
        self.calls = []  # (key, start, end)

    async def async_invoke(self, value):
        key = value["k"]
        number = self.attempts[key] = self.attempts.get(key, 0) + 1
        steps = self.script[key]
        start = asyncio.get_running_loop().time()
        try:
            return await steps[min(number, len(steps)) - 1]()
        finally:
            self.calls.append((key, start, asyncio.get_running_loop().time()))

    def timeout(self, value):
        if value["k"] in self.timeouts:
            return self.timeouts[value["k"]]()
        return super().timeout(value)


def reply(*answers, after=0.1):
    async def step():
        await asyncio.sleep(after)
        return list(answers)

    return step


def without_line(error):
    return re.sub(r" \(tests/[\w/.]+:\d+\)", "", error)


def fail(error, after=0.1):
    async def step():
        await asyncio.sleep(after)
        raise error

    return step


async def hang():
    await asyncio.Event().wait()


def cling(outcome):
    """Swallows its cancellation, goes on for a second, then does what `outcome` says."""

    async def step():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
        return await outcome()

    return step


def lookup(function, **fields):
    standard = {
        "name": "mood",
        "keys": {"k": "k"},
        "returns": "score DOUBLE",
        "timeout": 10.0,
        "max_concurrency": 4,
        "retry": Retry(retries=2, initial_delay=1.0, jitter=0.0),
        "function": lambda: function,
        "cache": None,
    }
    return AsyncFunctionLookup(**standard | fields)


def settled():
    """A row whose key is null, as it comes to the operators."""
    return LookupState(None, "skipped", is_settled=True)


def ask(function, *keys, concurrency=4, after=None, **fields):
    """Rows with these keys through the real operator; their LookupState afterwards, in the order in
    which they left.
    """
    declared = lookup(function, **fields)

    async def main():
        loop = asyncio.get_running_loop()

        def now_us():
            return int(loop.time() * 1e6)

        gate = Gate()
        watch = CircuitBreaker(declared.outage_rule, declared.service_name, gate, now_us)
        reported = AttemptCounts()
        client = client_for(declared, concurrency)
        asking = LookupFunction(
            declared, client, client.call, place=0, gate=gate, watch=watch, now_us=now_us,
            attempts=reported,
        )  # fmt: skip
        left = []
        strategy = exponential_backoff(
            max_retries=10**9, initial_delay=declared.retry.initial_delay,
            max_delay=declared.retry.max_delay, multiplier=declared.retry.multiplier,
            on_exception=needs_retry,
        )  # fmt: skip
        operator = AsyncWaitOperator(
            asking, left.append, mode=OutputMode.UNORDERED, timeout=declared.timeout, capacity=64,
            concurrency=concurrency, gate=gate, retry_strategy=strategy,
            runtime_context=lambda: operator,
        )  # fmt: skip
        await operator.open()
        try:
            for index, key in enumerate(keys):
                asked = settled() if key is None else LookupState((key,))
                await operator.process_element(StreamRecord(Row(None, index, (asked,))))
            await operator.end_input()
            if after:
                await asyncio.sleep(after)
        finally:
            await operator.close()
        ask.reported = reported
        return [record.value.asked[0] for record in left]

    return run_virtual(main)


def test_an_answer_is_ok_with_its_columns_and_its_time():
    (row,) = ask(Scripted({"a": [reply({"score": 1.0})]}), "a")
    assert (row.status, row.source, row.answer, row.error) == ("ok", "call", (1.0,), None)
    assert row.attempts == ((0, 100_000, False),)
    assert row.finished == row.answered_at == 100_000


def test_an_answer_in_one_step_leaves_the_same_columns_as_in_several_steps(monkeypatch):
    answers = reply({"score": 1.0})
    script = {
        "at once": [answers], "late": [fail(ValueError("no")), answers],
        "unfit": [reply({"score": "x"})],
        "throttled": [fail(Throttled("slow down", 3.0)), reply({"score": 2.0}, after=1.0)],
        "miss": [reply()],  # the gate closes and opens while it is under way
        "meanwhile": [reply({"score": 3.0}, after=2.0)],
    }  # fmt: skip
    quick = [asdict(row) for row in ask(Scripted(script), *script, concurrency=2)], ask.reported
    monkeypatch.setattr(LookupFunction, "_took_at_once", lambda *_: False)
    assert (
        [asdict(row) for row in ask(Scripted(script), *script, concurrency=2)],
        ask.reported,
    ) == quick
    assert any(row["paused"] > 0 for row in quick[0])


def test_an_empty_result_is_a_miss_with_its_time():
    (row,) = ask(Scripted({"a": [reply()]}), "a")
    assert (row.status, row.source, row.answer, row.error) == ("miss", "call", None, None)
    assert row.answered_at == 100_000


def test_a_null_key_is_skipped_without_a_call():
    function = Scripted({})
    (row,) = ask(function, None)
    assert (row.status, row.source, row.attempts, row.answered_at) == ("skipped", None, (), None)
    assert function.calls == []


def test_two_answers_are_an_error_and_not_called_again():
    (row,) = ask(Scripted({"a": [reply({"score": 1.0}, {"score": 2.0})]}), "a")
    assert (row.status, row.error) == (
        "error",
        "the function gave 2 answers for one row; a lookup gives one",
    )
    assert len(row.attempts) == 1


@pytest.mark.parametrize("answer", [None, {"score": 1.0}, [1.0], "x"])
def test_a_result_that_is_not_a_list_of_dicts_is_an_error(answer):
    async def step():
        return answer

    (row,) = ask(Scripted({"a": [step]}), "a")
    assert row.status == "error"
    assert row.error.startswith("the function gave ")
    assert row.error.endswith("it must give a list of dicts")


def test_an_answer_that_does_not_fit_is_an_error_with_the_column():
    (row,) = ask(Scripted({"a": [reply({"score": "good"})]}), "a")
    assert (row.status, row.answer, row.source) == ("error", None, None)
    assert row.error == "the answer does not fit: score: expected DOUBLE, got 'good'"


def test_an_exception_of_the_function_is_retried_and_then_an_error():
    function = Scripted(
        {"a": [fail(OSError("broken\npipe")), fail(ValueError("odd")), fail(KeyError("last"))]}
    )
    (row,) = ask(function, "a")
    assert (row.status, without_line(row.error)) == ("error", "KeyError: 'last'")
    # 0.1 s each, pauses of 1 s and 2 s
    assert [start for start, _, _ in row.attempts] == [0, 1_100_000, 3_200_000]


def test_an_exception_whose_text_fails_is_the_error_of_its_row():
    class Refused(Exception):  # noqa: N818  # as users name them
        def __str__(self):
            return f"status {self.status}"

    (row,) = ask(Scripted({"a": [fail(Refused())] * 3}), "a")
    assert (row.status, without_line(row.error)) == (
        "error",
        "Refused: (without a text, as its __str__ fails)",
    )


def test_a_retry_that_succeeds_leaves_no_error():
    (row,) = ask(Scripted({"a": [fail(OSError("broken")), reply({"score": 1.0})]}), "a")
    assert (row.status, row.error, len(row.attempts)) == ("ok", None, 2)
    assert ask.reported == AttemptCounts(answered_us=[100_000], unanswered=1, retries=1)


def test_an_error_is_stored_as_a_single_valid_line():
    (row,) = ask(
        Scripted({"a": [fail(OSError("broken\n  pipe \ud800"))]}), "a", retry=Retry(retries=0)
    )
    assert without_line(row.error) == "OSError: broken pipe ?"
    assert one_line("a\r\n\tb\udcff") == "a b?"


def test_an_error_is_bounded_and_shows_control_characters_as_escapes():
    message = "\x1b[2J\x00 red\u202e" + "x" * 900_000
    (row,) = ask(Scripted({"a": [fail(OSError(message))]}), "a", retry=Retry(retries=0))
    assert row.error.startswith("OSError: \\x1b[2J\\x00 red\\u202exxx")
    assert row.error.endswith(" characters)")
    assert len(row.error) < 2_050


def test_a_cancellation_inside_the_function_is_a_failed_call():
    (row,) = ask(Scripted({"a": [fail(asyncio.CancelledError()), reply({"score": 1.0})]}), "a")
    assert (row.status, len(row.attempts)) == ("ok", 2)


def test_the_time_limit_ends_all_attempts_of_a_row_as_a_timeout():
    (row,) = ask(Scripted({"a": [fail(OSError("broken")), hang]}), "a", timeout=5.0)
    assert (row.status, row.source, row.answer, row.answered_at) == ("timeout", None, None, None)
    told = "no answer within 5.0 s, 2 attempts; before that: OSError: broken"
    assert without_line(row.error) == told
    assert row.attempts == ((0, 100_000, False), (1_100_000, 5_000_000, False))
    assert row.finished == 5_000_000


def test_a_time_limit_between_two_attempts_counts_the_attempts_made():
    (row,) = ask(Scripted({"a": [fail(OSError("broken"))]}), "a", timeout=1.0)
    told = "no answer within 1.0 s, 1 attempts; before that: OSError: broken"
    assert without_line(row.error) == told
    assert row.attempts == ((0, 100_000, False),)


@pytest.mark.parametrize(
    "outcome", [reply({"score": 1.0}), fail(OSError("late")), fail(Throttled("late", 99.0))]
)
def test_a_late_result_of_a_cancelled_call_does_not_change_its_row(outcome):
    function = Scripted({"a": [cling(outcome)], "b": [reply({"score": 2.0})]})
    rows = ask(function, "a", "b", concurrency=1, timeout=5.0, after=30)
    timed_out = next(row for row in rows if row.key == ("a",))
    assert (timed_out.status, timed_out.answer, timed_out.source) == ("timeout", None, None)
    assert timed_out.attempts == ((0, 5_000_000, False),)
    assert (timed_out.finished, timed_out.paused) == (5_000_000, 0.0)
    after_it = next(row for row in rows if row.key == ("b",))
    assert (after_it.status, after_it.paused) == ("ok", 0.0)


def test_a_fallback_replaces_a_call_that_timed_out():
    (row,) = ask(Scripted({"a": [hang]}, {"a": lambda: [{"score": 0.5}]}), "a", timeout=5.0)
    assert (row.status, row.answer, row.error) == ("fallback", (0.5,), None)
    assert row.answered_at == 5_000_000


@pytest.mark.parametrize("fallback", [list, None])
def test_a_fallback_without_a_result_leaves_a_timeout(fallback):
    (row,) = ask(Scripted({"a": [hang]}, {"a": fallback} if fallback else {}), "a", timeout=5.0)
    assert row.status == "timeout"


def boom():
    raise ZeroDivisionError("no\nway")


@pytest.mark.parametrize(
    ("fallback", "message"),
    [
        (
            lambda: [{"score": 1.0}, {"score": 2.0}],
            "its fallback: the function gave 2 answers for one row",
        ),
        (lambda: "x", "its fallback: the function gave str; it must give a list of dicts"),
        (boom, "its fallback: ZeroDivisionError: no way"),
    ],
)
def test_a_fallback_that_raises_leaves_a_timeout_with_the_reason(fallback, message):
    (row,) = ask(Scripted({"a": [hang]}, {"a": fallback}), "a", timeout=5.0)
    assert row.status == "timeout"
    assert row.error.startswith("no answer within 5.0 s, 1 attempts; ")
    assert message in row.error


def test_a_fallback_that_does_not_fit_is_an_error():
    (row,) = ask(Scripted({"a": [hang]}, {"a": lambda: [{"score": "x"}]}), "a", timeout=5.0)
    assert (row.status, row.answer) == ("error", None)
    assert "score: expected DOUBLE" in row.error


def test_a_function_without_a_timeout_method_or_with_that_of_flink_runs_unchanged():
    class Bare:
        async def async_invoke(self, value):
            await hang()

    class Flinks(Bare):
        def timeout(self, value):
            raise TimeoutError("Async function call has timed out.")

    for function in (Bare(), Flinks()):
        (row,) = ask(function, "a", timeout=5.0)
        assert row.status == "timeout"


def test_a_timeout_that_is_a_coroutine_is_refused():
    class Late(AsyncFunction):
        async def async_invoke(self, value):
            return []

        async def timeout(self, value):
            return []

    with pytest.raises(DeclarationError, match="lookup mood: timeout is an async def"):
        ask(Late(), "a")


def test_a_function_that_cannot_be_awaited_or_called_ends_the_run_at_its_first_call():
    class Plain:
        calls = 0

        def async_invoke(self, value):
            self.calls += 1
            return [{"score": 1.0}]

    class WithoutArgument:
        async def async_invoke(self):
            return []

    plain = Plain()
    for function in (plain, WithoutArgument()):
        with pytest.raises(AsyncInvokeError, match="needs `async def async_invoke") as failure:
            ask(function, "a", retry=Retry(retries=2))
        assert type(user_facing_error(failure.value)) is TidegateError
    assert plain.calls == 1


def test_throttled_calls_use_up_no_retry_and_the_clock_stands_while_the_gate_is_closed():
    function = Scripted({"a": [fail(Throttled("429", 20.0))] * 4 + [reply({"score": 1.0})]})
    (row,) = ask(function, "a", timeout=10.0, retry=Retry(retries=0))
    assert row.status == "ok"
    assert [throttled for *_, throttled in row.attempts] == [True] * 4 + [False]
    assert row.finished > 80_000_000
    assert row.finished / 1e6 - row.paused < 10.0


def test_no_call_starts_while_a_throttled_call_waits():
    function = Scripted(
        {"a": [fail(Throttled("429", 20.0)), reply({"score": 1.0})]}
        | {k: [reply()] for k in "bcdefgh"}
    )
    ask(function, *"abcdefgh", concurrency=2)
    starts = [start for _, start, _ in function.calls]
    assert not [start for start in starts if 0.1 < start < 20.1]
    assert len(starts) == 9


def test_a_service_that_goes_down_is_probed_and_its_rows_keep_their_retries():
    ups_at = 100.0

    async def step():
        await asyncio.sleep(0.1)
        if asyncio.get_running_loop().time() < ups_at:
            raise OSError("down")
        return [{"score": 1.0}]

    function = Scripted({k: [step] for k in "abcd"})
    outage = Outage(after=2, probe_every=timedelta(seconds=30), wait_at_most=timedelta(minutes=30))
    rows = ask(function, *"abcd", outage=outage, retry=Retry(retries=0), concurrency=4)
    # the first failed before it was known
    assert sorted(row.status for row in rows) == ["error", "ok", "ok", "ok"]
    assert all(row.paused > 89 for row in rows if row.status == "ok")
    used_up = [sum(not throttled for _, _, throttled in row.attempts) for row in rows]
    # what the checks count: an attempt while the service was down is marked as throttled
    assert max(used_up) == 1


def test_a_service_that_stays_down_stops_the_run_with_the_last_error():
    function = Scripted({k: [fail(OSError("down"))] for k in "ab"})
    outage = Outage(after=2, probe_every=timedelta(seconds=30), wait_at_most=timedelta(seconds=60))
    with pytest.raises(AsyncInvokeError) as stopped:
        ask(function, "a", "b", outage=outage)
    assert isinstance(stopped.value.__cause__, RunStopped)
    assert without_line(str(stopped.value.__cause__)).startswith(
        "mood stopped answering at 00:00:00 UTC (OSError: down); gate closed"
    )


def test_rows_that_time_out_count_in_an_outage_and_each_failure_counts_once():
    function = Scripted({k: [hang] for k in "abc"})
    with pytest.raises(AsyncInvokeError) as stopped:
        ask(function, *"abc", timeout=5.0, outage=Outage(after=3, wait_at_most=timedelta(0)))
    assert isinstance(stopped.value.__cause__, RunStopped)
    # then the limit ends the pause before the second try
    once = Scripted({k: [fail(OSError("down"))] for k in "abc"})
    rows = ask(once, *"abc", timeout=1.0, outage=Outage(after=4, wait_at_most=timedelta(0)))
    assert [row.status for row in rows] == ["timeout"] * 3


@pytest.mark.parametrize(
    ("policy", "script", "message"),
    [
        ("on_miss", [reply()], "lookup mood: a row ended as miss; on_miss is 'fail'."),
        (
            "on_timeout",
            [hang],
            "a row ended as timeout (no answer within 10.0 s, 1 attempts); on_timeout is 'fail'.",
        ),
        ("on_error", [fail(CallFailed("gone", passing=False))], "a row ended as error"),
    ],
)
def test_the_policy_fail_ends_the_run_with_one_sentence(policy, script, message):
    with pytest.raises(AsyncInvokeError) as failed:
        ask(Scripted({"a": script}), "a", retry=Retry(retries=0), **{policy: "fail"})
    assert isinstance(failed.value.__cause__, RowFailed)
    assert message in str(failed.value.__cause__)


def test_a_null_key_fails_the_run_if_declared():
    with pytest.raises(AsyncInvokeError) as failed:
        ask(Scripted({}), None, on_null_key="fail")
    assert str(failed.value.__cause__) == "lookup mood: a key is null, and on_null_key is 'fail'."


def test_open_and_close_of_a_function_may_be_plain_or_async():
    class Hooked(Scripted):
        def __init__(self):
            super().__init__({"a": [reply()]})
            self.hooks = []

        async def open(self, runtime_context):
            self.hooks.append("open")

        def close(self):
            self.hooks.append("close")

    function = Hooked()
    ask(function, "a")
    assert function.hooks == ["open", "close"]


def test_a_call_that_begins_as_the_gate_closes_pauses_no_longer_than_it_lasts():
    declared = lookup(Scripted({"a": [reply({"score": 1.0}, after=4.0)]}))

    async def main():
        loop, gate = asyncio.get_running_loop(), Gate()
        watch = CircuitBreaker(declared.outage_rule, "mood", gate, lambda: int(loop.time() * 1e6))
        client = client_for(declared, 1)
        asking = LookupFunction(
            declared, client, client.call, place=0, gate=gate, watch=watch,
            now_us=lambda: int(loop.time() * 1e6), attempts=AttemptCounts(),
        )  # fmt: skip
        await asking.open(lambda: None)
        gate.close(5.0)
        await asyncio.sleep(2.0)
        row = LookupState(("a",))
        await asking.async_invoke(Row(None, 0, (row,)))
        await asking.close()
        return row

    row = run_virtual(main)
    assert row.paused == pytest.approx(3.0), "of the four seconds of the call"


class SlowAnswer(dict):
    """An answer that takes a while to read."""

    def get(self, *arguments):
        time.sleep(0.05)
        return super().get(*arguments)


@pytest.mark.parametrize("score", [1.0, "no number"])
@pytest.mark.parametrize("stands_still", [0.0, 0.05])  # s, after a look at the clock
def test_the_paused_time_of_a_row_ends_with_its_call(score, stands_still):
    async def main():
        loop, gate = asyncio.get_running_loop(), Gate()

        async def answer():
            gate.close(5.0)
            return [SlowAnswer(score=score)]

        def now_us():
            now = int(loop.time() * 1e6)
            if not gate.is_open:
                time.sleep(stands_still)
            return now

        declared = lookup(Scripted({"a": [answer]}))
        watch = CircuitBreaker(declared.outage_rule, "mood", gate, now_us)
        client = client_for(declared, 1)
        asking = LookupFunction(
            declared, client, client.call, place=0, gate=gate, watch=watch, now_us=now_us,
            attempts=AttemptCounts(),
        )  # fmt: skip
        await asking.open(lambda: None)
        row = LookupState(("a",))
        await asking.async_invoke(Row(None, 0, (row,)))
        await asking.close()
        return row

    row = asyncio.run(main())
    began = row.attempts[0][0]
    assert 0 <= row.paused <= (row.finished - began) / 1e6 + 0.005
