"""SqlLookup on an executor: a connection pool, with a query per key or per batch."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from jobs.clients.batcher import Batching, BatchingClient, BatchRefused
from jobs.clients.client import CallFailed, Unclear
from jobs.clients.exchanges import trace
from jobs.clients.request_counter import counts_of
from jobs.clients.sql.sql_engine import (
    dispose,
    engine_for,
    failure,
    fitted_engine,
    interruptibly,
    is_about_a_value,
    require_file_here,
)
from jobs.clients.sql.sql_keys import ColumnTypes
from jobs.clients.sql.sql_statements import ROWS_PER_KEY, ManyKeys, columns_of_times, one_key, plain
from jobs.declare.answers.answer_casts import AnswerColumn, cast_all
from jobs.declare.answers.json_text import read_json
from jobs.declare.answers.times import shown
from jobs.declare.lookup import Key
from jobs.declare.sql_lookup import SqlLookup
from jobs.errors import TidegateError


class SqlClient(BatchingClient):
    """A partition's pool, with a connection per allowed query in flight."""

    def __init__(self, lookup: SqlLookup, share: int) -> None:
        self._lookup = lookup
        self._share = share
        self._engine: AsyncEngine | None = None
        self._is_fitted = False  # the engine is known to fit the server or pooler at the address
        self._deciding = asyncio.Lock()
        self._columns = lookup.columns
        self._names = tuple(column.name for column in self._columns)
        self._select: Any = None  # for one key
        self._text = ""  # its text in the database's dialect
        # columns that may be infinite, each with a flag after the answer
        self._endless: Sequence[str] = ()
        self._limit = lookup.attempt_timeout or lookup.timeout
        self._types: ColumnTypes | None = None  # known after the first query
        self._fits_by_part: Sequence[Callable[[Any], Any]] = ()
        self._counts = counts_of(lookup.name)
        self.batching: Batching | None = None
        if lookup.batch_size > 1:
            self.batching = Batching(
                self._ask_many,
                max_items=lookup.batch_size,
                max_wait=lookup.max_wait,
                max_requests=share,
            )

    async def open(self) -> None:
        self._engine = engine_for(self._lookup, self._share)
        require_file_here(self._lookup, self._engine)
        dialect = self._engine.dialect
        self._select = one_key(self._lookup, dialect.name)
        self._endless = columns_of_times(self._lookup, dialect.name)
        self._text = str(self._select.compile(dialect=dialect))

    async def close(self) -> None:
        await self.close_batching()
        if self._engine is not None:
            await dispose(self._engine)

    async def call(self, key: Key) -> Any | None:
        return await (self._ask_one(key) if self.batching is None else self.batching.call(key))

    async def _ask_one(self, key: Key) -> dict[str, Any] | None:
        async def ask(connection: AsyncConnection) -> Sequence[Any]:
            parameters = {f"key_{number}": value for number, value in enumerate(self._fitting(key))}
            exchange = trace("sql", self._text, list(parameters.values()))
            rows = (await connection.execute(self._select, parameters)).fetchall()
            if exchange is not None:
                exchange.answer = repr([self._named(row) for row in rows])
            return rows

        try:
            rows = await self._connected(ask, 1)
        except (TidegateError, CallFailed):
            raise
        except Exception as error:
            raise self._failure(error) from error
        if len(rows) > 1:
            raise self._two_rows()
        return self._answer(rows[0]) if rows else None

    async def _ask_many(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return an outcome per key. Raises BatchRefused if a single key may be at fault."""
        refused: dict[int, CallFailed] = {}  # by the key's number

        async def ask(connection: AsyncConnection) -> Sequence[Any]:
            fitting = self._fitting_keys(keys, refused)
            if not fitting:
                return []
            many = ManyKeys(
                self._lookup, connection.dialect, self._types.types if self._types else {}
            )
            statement, parameters = many.query(fitting)
            exchange = trace("sql", statement, parameters)
            rows = (await connection.exec_driver_sql(statement, parameters)).fetchall()
            if exchange is not None:
                exchange.answer = repr([self._named(row[1:]) for row in rows])
            return rows

        try:
            rows = await self._connected(ask, len(keys))
        except (TidegateError, CallFailed):
            raise
        except Exception as error:
            raised = self._failure(error)
            if isinstance(raised, CallFailed) and not raised.passing and is_about_a_value(error):
                raise BatchRefused(str(raised)) from error
            raise raised from error
        asked = len(keys) - len(refused)
        # a key without a row may have a row beyond the limit
        if rows and len(rows) >= ROWS_PER_KEY * asked:
            return [await self._outcome(key) for key in keys]
        found = iter(self._outcomes(rows, asked))
        return [
            refused[number] if number in refused else next(found) for number in range(len(keys))
        ]

    async def _outcome(self, key: Key) -> Any:
        try:
            return await self._ask_one(key)
        except CallFailed as failed:
            return failed

    async def _connected(self, ask: Callable[[AsyncConnection], Any], keys: int) -> Sequence[Any]:
        """Run `ask` within an attempt's time; an abandoned query is cancelled at the server."""
        request = self._counts.request(keys)
        try:
            async with (
                asyncio.timeout(self._limit) as limit,
                (await self._engine_here()).connect() as connection,
            ):
                if self._types is None:
                    self._types = await ColumnTypes.read(connection, self._lookup)
                    self._fits_by_part = self._types.fits()
                request.leaves()
                request.is_written()
                rows: Sequence[Any] = await interruptibly(connection, ask)
                self._counts.answered += 1
                return rows
        except TimeoutError as error:
            if not limit.expired():  # the driver's own, or the network's
                raise
            raise CallFailed(f"no answer within {self._limit} s", passing=True) from error
        finally:
            request.ends()

    async def _engine_here(self) -> AsyncEngine:
        """Return the pool, which the first query fits to the server or pooler at the address."""
        assert self._engine is not None
        async with self._deciding:
            if not self._is_fitted:
                self._engine = await fitted_engine(self._engine, self._lookup, self._share)
                self._is_fitted = True
        return self._engine

    def _fitting(self, key: Key) -> Key:
        try:
            return tuple(fit(value) for fit, value in zip(self._fits_by_part, key, strict=True))
        except ValueError as error:
            raise CallFailed(str(error)) from error

    def _fitting_keys(self, keys: Sequence[Key], refused: dict[int, CallFailed]) -> list[Key]:
        """Return the keys for the query; `refused` gets the failures of the others, by number."""
        refused.clear()  # results of an earlier try
        fitting = []
        for number, key in enumerate(keys):
            try:
                fitting.append(self._fitting(key))
            except CallFailed as failure:
                refused[number] = failure
        return fitting

    def _outcomes(self, rows: Sequence[Any], count: int) -> list[Any]:
        outcomes: list[Any] = [None] * count
        for row in rows:
            number = row[0]
            outcomes[number] = (
                self._answer_or_failure(row[1:]) if outcomes[number] is None else self._two_rows()
            )
        return outcomes

    def _named(self, row: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self._names, row, strict=False))  # flags may follow

    def _answer(self, row: Sequence[Any]) -> dict[str, Any]:
        infinite = [
            name for name, flag in zip(self._endless, row[len(self._names) :], strict=True) if flag
        ]
        if infinite:
            raise Unclear(
                f"{infinite[0]} is infinite in the database, which no date or time can be"
            )
        try:
            return {name: plain(value) for name, value in self._named(row).items()}
        except ValueError as error:
            raise Unclear(str(error)) from error

    def _answer_or_failure(self, row: Sequence[Any]) -> Any:
        try:
            return self._answer(row)
        except CallFailed as failed:
            return failed

    def _two_rows(self) -> Unclear:
        return Unclear(
            f"{self._lookup.asked} has two or more rows for this key; a lookup gives one"
        )

    def _failure(self, error: Exception) -> Exception:
        assert self._engine is not None
        return failure(error, self._lookup, self._engine)

    def columns(self, answer: Any) -> tuple[Any, ...]:
        typed = zip(self._columns, (answer[name] for name in self._names), strict=True)
        return cast_all(self._columns, [as_typed(column, value) for column, value in typed])

    def fallback(self, key: Key) -> None:  # noqa: ARG002  # a table has no fallback
        return None


def as_typed(column: AnswerColumn, value: Any) -> Any:
    """Convert a value that the database cannot type, such as 0 for False, or JSON as text.

    Raises:
        ValueError: A text for BINARY, whose encoding only the user knows.
    """
    if pa.types.is_binary(column.item_type):
        _refuse_texts(column.name, value)
    if pa.types.is_boolean(column.arrow_type):  # SQLite
        return bool(value) if value in (0, 1) else value
    if isinstance(value, str) and pa.types.is_nested(column.arrow_type):
        try:
            return read_json(value)
        except ValueError:
            return value
    return value


def _refuse_texts(name: str, value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _refuse_texts(name, item)
    if isinstance(value, str) and not value.startswith("["):  # JSON of an array
        raise ValueError(
            f"{name}: expected BINARY, got the text {shown(value)}; give its bytes in a select, as "
            "decode(name, 'hex') or CAST(name AS BLOB)"
        )
