"""Calls a user's AsyncFunction, Flink's included, with a dict of keys on an executor."""

import asyncio
import inspect
from typing import Any

from asyncio_core import AsyncFunction
from jobs.clients.client import (
    CallFailed,
    RunsUserCode,
    Throttled,
    Unclear,
    failed_by_cancel,
    failed_by_user,
    with_line,
)
from jobs.clients.exchanges import EXCHANGES, trace
from jobs.clients.request_counter import IN_CALL
from jobs.declare.answers.answer_casts import cast_all
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.lookup import Key
from jobs.errors import DeclarationError, TidegateError
from jobs.wording import described


class FunctionClient(RunsUserCode):
    def __init__(self, lookup: AsyncFunctionLookup) -> None:
        self._lookup = lookup
        self.name = lookup.name
        try:
            self._function: Any = lookup.function()
        except TidegateError:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(lookup, "made", error) from error
        if inspect.iscoroutinefunction(getattr(self._function, "timeout", None)):
            raise DeclarationError(
                f"lookup {lookup.name}: timeout is an async def; it must be a plain def, because "
                "it is called when the time is over."
            )
        self._columns = lookup.columns
        self._reads = tuple((column.name, column.cast) for column in lookup.columns)
        self._names = tuple(lookup.keys)
        self._module = type(self._function).__module__
        self._called = f"{type(self._function).__qualname__}.async_invoke"

    async def open(self) -> None:
        await self._lifecycle("open", "opened", None)

    async def close(self) -> None:
        await self._lifecycle("close", "closed")

    async def _lifecycle(self, step: str, done: str, *arguments: Any) -> None:
        method = getattr(self._function, step, None)
        try:
            if method is not None and inspect.isawaitable(result := method(*arguments)):
                await result
        except TidegateError:
            raise
        except asyncio.CancelledError as error:
            raise _failed(self._lookup, done, failed_by_cancel(error)) from error
        except (Exception, SystemExit) as error:
            raise _failed(self._lookup, done, error) from error

    async def call(self, key: Key) -> Any | None:
        names = self._names
        # a dict of one key takes a third of the time of zip, and strict is slower still
        keys = {names[0]: key[0]} if len(names) == 1 else dict(zip(names, key))  # noqa: B905
        # checked here too, because the frame of trace costs 1 %
        exchange = None if EXCHANGES.get() is None else trace("function", self._called, keys)
        if (call_of := IN_CALL.get()) is not None:
            call_of.request_left(1)
        try:
            answers = await self._function.async_invoke(keys)
        except (TidegateError, CallFailed, Throttled):
            raise
        except asyncio.CancelledError as error:
            raise failed_by_cancel(error) from error
        except BaseException as error:  # sys.exit too
            here = error.__traceback__
            if isinstance(error, TypeError) and here is not None and here.tb_next is None:
                # not from within the function: each row would make and repeat the call in vain
                raise TidegateError(
                    f"lookup {self.name}: its function needs `async def async_invoke(self, value)`"
                    f"; the call gave {described(error)}"
                ) from error
            is_passing = isinstance(error, Exception)
            raise failed_by_user(error, self._module, passing=is_passing) from error
        if exchange is not None:
            exchange.answer = repr(answers)
        # usual; saves 1 µs per row
        if type(answers) is list and len(answers) == 1 and type(answers[0]) is dict:
            return answers[0]
        return self._one(answers)

    def _one(self, answers: Any) -> Any | None:
        if not isinstance(answers, list | tuple) or not all(
            isinstance(answer, dict) for answer in answers
        ):
            raise Unclear(
                f"the function gave {type(answers).__name__}; it must give a list of dicts"
            )
        if len(answers) > 1:
            raise Unclear(
                f"the function gave {len(answers)} answers for one row; a lookup gives one"
            )
        return answers[0] if answers else None

    def columns(self, answer: Any) -> tuple[Any, ...]:
        values = []
        try:
            for name, cast in self._reads:  # a comprehension adds a frame in Python 3.11
                values.append(cast(answer.get(name)))
            return tuple(values)
        except Exception:  # noqa: BLE001  # of whatever class; raised again with the column's name
            return cast_all(self._columns, [answer.get(name) for name, _ in self._reads])

    def fallback(self, key: Key) -> Any | None:
        method = getattr(type(self._function), "timeout", None)
        if method is None or method is AsyncFunction.timeout:
            return None
        try:
            answers = self._function.timeout(dict(zip(self._names, key, strict=True)))
        except TidegateError:
            raise
        except TimeoutError:  # Flink's default timeout raises it: no fallback
            return None
        except BaseException as error:  # sys.exit too
            raise failed_by_user(error, self._module) from error
        return self._one(answers)


def _failed(lookup: AsyncFunctionLookup, step: str, error: BaseException) -> TidegateError:
    text = (
        str(error)
        if isinstance(error, CallFailed)
        else with_line(error, lookup.function.__module__)
    )
    message = " ".join(text.split())
    return TidegateError(f"lookup {lookup.name}: its function cannot be {step}: {message}")
