"""What the operator takes for an async function, what it refuses at construction, and what counts
as results.
"""

import asyncio
import functools

import pytest

from asyncio_core import (
    AsyncFunction,
    AsyncInvokeError,
    AsyncWaitOperator,
    OutputMode,
    StreamRecord,
    fixed_delay,
)
from asyncio_core.testing import Reply, ScriptedFunction, run_virtual


def operator_for(function, **options):
    options = {"mode": OutputMode.ORDERED, "timeout": 1.0, **options}
    return AsyncWaitOperator(function, lambda element: None, **options)


async def invoke(value):
    return [value]


def plain(value):
    return [value]


async def generator(value):
    yield value


class CallableObject:
    async def __call__(self, value):
        return [value]


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


class Bare:
    """Nothing but the attributes given: a function by duck typing."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    "invoke", [plain, lambda value: [value], functools.partial(plain), print, generator]
)
def test_an_async_invoke_that_is_not_a_coroutine_function_is_refused(invoke):
    with pytest.raises(TypeError, match="async_invoke must"):
        operator_for(Bare(async_invoke=invoke))


def test_function_without_async_invoke_is_refused():
    with pytest.raises(TypeError, match="async def async_invoke"):
        operator_for(invoke)


def generated(*_):
    yield True


async def generated_async(*_):
    yield True


@pytest.mark.parametrize("hook", ["open", "close", "timeout", "survives_timeout"])
def test_a_hook_that_is_neither_a_plain_nor_an_async_function_is_refused(hook):
    for wrong in (5, generated_async, *([] if hook == "timeout" else [generated])):
        with pytest.raises(TypeError, match=f"Bare.{hook} must"):
            operator_for(Bare(async_invoke=invoke, **{hook: wrong}))


def test_a_class_in_place_of_its_instance_is_refused():
    with pytest.raises(
        TypeError, match=r"AsyncFunction is its class\. Make one: AsyncFunction\(\)"
    ):
        operator_for(AsyncFunction)


def test_async_timeout_is_refused():
    class AsyncTimeout(AsyncFunction):
        async_invoke = invoke

        async def timeout(self, value):
            return [value]

    with pytest.raises(TypeError, match="plain `def`"):
        operator_for(AsyncTimeout())


def test_an_async_survives_timeout_is_refused():
    class AsyncSurvival(AsyncFunction):
        async_invoke = invoke

        async def survives_timeout(self, value):
            return True

    with pytest.raises(TypeError, match="plain `def`"):
        operator_for(AsyncSurvival())


@pytest.mark.parametrize(
    "callable_",
    [
        invoke,
        CallableObject(),
        functools.partial(invoke),
        wrapped(invoke),
        functools.partial(CallableObject()),
    ],
)
def test_a_callable_that_returns_a_coroutine_is_accepted(opened, callable_):
    async def main():
        async with opened(Bare(async_invoke=callable_)) as run:
            await run.put(1)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [1]


def test_a_pyflink_style_function_runs_unchanged(opened):
    # as pyflink.datastream.AsyncFunction: plain open and close, timeout that raises
    class FromPyFlink:
        def open(self, runtime_context):
            self.reported = runtime_context

        def close(self):
            self.reported = None

        async def async_invoke(self, value):
            return [(value, self.reported)]

        def timeout(self, value):
            raise TimeoutError(value)

    async def main():
        function = FromPyFlink()
        async with opened(function, runtime_context="context") as run:
            await run.put(1)
            await run.operator.end_input()
        return run.values, function.reported

    assert run_virtual(main) == ([(1, "context")], None)


def test_open_and_close_may_be_async_and_run_once_on_the_loop(opened):
    class Async(AsyncFunction):
        log = []  # noqa: RUF012 - one instance, one test

        async def open(self, runtime_context):
            await asyncio.sleep(1)
            self.log.append(("open", runtime_context, asyncio.get_running_loop().time()))

        async def close(self):
            await asyncio.sleep(1)
            self.log.append(("close", asyncio.get_running_loop().time()))

        async def async_invoke(self, value):
            self.log.append(("invoke", value))
            return [value]

    async def main():
        async with opened(Async(), runtime_context=7) as run:
            await run.put(1)
            await run.operator.end_input()
        await run.operator.close()

    run_virtual(main)
    assert Async.log == [("open", 7, 1.0), ("invoke", 1), ("close", 2.0)]


@pytest.mark.parametrize("returned", [None, 5, "abc", b"abc", bytearray(b"a"), {"a": 1}, object()])
def test_results_that_are_not_a_list_fail_with_a_clear_message_and_are_not_retried(
    opened, returned
):
    async def main():
        function = ScriptedFunction({1: Reply(returned)})
        async with opened(function, retry_strategy=retry_everything()) as run:
            await run.put(1)
            with pytest.raises(
                AsyncInvokeError, match="async_invoke must return a list"
            ) as failure:
                await run.operator.end_input()
        assert isinstance(failure.value.__cause__, TypeError)
        assert type(returned).__name__ in str(failure.value)
        return len(function.calls)

    assert run_virtual(main) == 1


def retry_everything():
    return fixed_delay(
        max_retries=3, delay=1.0, on_result=lambda _: True, on_exception=lambda _: True
    )


@pytest.mark.parametrize("returned", [(1, 2), iter([1, 2]), (n for n in (1, 2)), range(1, 3)])
def test_other_iterables_are_taken_as_results(opened, returned):
    async def main():
        async with opened({0: Reply(returned)}) as run:
            await run.put(0)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [1, 2]


def test_a_result_without_its_await_is_reported_as_a_missing_await(opened):
    class Forgot(AsyncFunction):
        async def async_invoke(self, value):
            return invoke(value)

    async def main():
        async with opened(Forgot()) as run:
            await run.put(1)
            await run.operator.end_input()

    with pytest.raises(AsyncInvokeError, match="`await` is missing"):
        run_virtual(main)


def test_a_done_future_is_refused_as_results(opened):
    async def main():
        done = asyncio.get_running_loop().create_future()
        done.set_result(["an answer"])
        async with opened({1: Reply(done)}) as run:
            await run.put(1)
            await run.operator.end_input()

    with pytest.raises(AsyncInvokeError, match="got a Future: an `await` is missing"):
        run_virtual(main)


def test_a_timeout_that_returns_no_list_fails(opened):
    async def main():
        async with opened({1: Reply([1], after=9)}, timeouts={1: "abc"}, timeout=1.0) as run:
            await run.put(1)
            await run.operator.end_input()

    with pytest.raises(AsyncInvokeError, match="timeout must return a list"):
        run_virtual(main)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 2.0}, "capacity"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 101}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"mode": "ordered"}, "mode"),
        ({"mode": OutputMode.KEY_ORDERED}, "key"),
        ({"key": len}, "key"),
    ],
)
def test_wrong_arguments_are_refused_at_construction_by_name(options, name):
    with pytest.raises(ValueError, match=name):
        operator_for(Bare(async_invoke=invoke), **options)


@pytest.mark.parametrize("strategy", [None, 3, object()])
def test_an_object_that_is_not_a_retry_strategy_is_refused(strategy):
    with pytest.raises(TypeError, match="retry strategy"):
        operator_for(Bare(async_invoke=invoke), retry_strategy=strategy)


async def answered(*_):
    return True


class AnswersLater:
    async def __call__(self, *_):
        return True


@pytest.mark.parametrize("wrong", [answered, AnswersLater(), generated, generated_async, 5])
def test_an_output_key_or_predicate_that_would_not_run_is_refused(wrong):
    function = Bare(async_invoke=invoke)
    with pytest.raises(TypeError, match="output must be a plain function"):
        AsyncWaitOperator(function, wrong, mode=OutputMode.ORDERED, timeout=1.0)
    with pytest.raises(TypeError, match="key must be a plain function"):
        operator_for(function, mode=OutputMode.KEY_ORDERED, key=wrong)
    for name in ("on_result", "on_exception"):
        strategy = fixed_delay(max_retries=1, delay=1.0, **{name: wrong})
        with pytest.raises(TypeError, match=f"{name} must be a plain function"):
            operator_for(function, retry_strategy=strategy)
    for name in ("can_retry", "delay"):
        methods = {"can_retry": bool, "delay": float, "on_result": None, "on_exception": bool}
        strategy = Bare(**{**methods, name: wrong})
        with pytest.raises(TypeError, match=f"{name} must be a plain function"):
            operator_for(function, retry_strategy=strategy)


def test_the_base_class_alone_is_refused_as_a_function(opened):
    async def main():
        async with opened(AsyncFunction()) as run:
            await run.operator.process_element(StreamRecord(1))
            await run.operator.end_input()

    with pytest.raises(AsyncInvokeError, match="must define"):
        run_virtual(main)
