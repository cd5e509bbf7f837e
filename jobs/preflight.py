"""What can be known to be wrong before Spark starts: declaration against input, secrets, services, table."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import pyarrow as pa

from jobs.declarations import Enrichment, written_columns
from jobs.environment import Env, resolve
from jobs.errors import DeclarationError, RunStopped
from jobs.input_day import InputDay, find_input
from jobs.lookups import HttpLookup, Lookup, SqlLookup
from jobs.lookups.lookup import columns_in
from jobs.lookups.services import Service
from jobs.schema import ROW_COLUMNS, SOURCE_IDENTITY, audit_columns, key

TRIES = 3
PAUSE = 0.5  # s between them


def preflight(enrichment: Enrichment, day: str) -> InputDay:
    """Everything that can be checked without Spark and without asking for an answer.

    Raises DeclarationError, and RunStopped when a service is down: it may be back, where the day is started again.
    """
    from jobs.published_types import check_types  # they take deltalake, which the definitions load without
    from jobs.tables.summary_sql import check_summaries

    input_day = find_input(enrichment, day)
    check_columns(enrichment, input_day.names)
    check_partition(enrichment, input_day.names)
    check_event_time(enrichment, input_day.schema)
    check_types(enrichment, input_day)
    check_summaries(enrichment, input_day, day)
    asyncio.run(check_services(enrichment))
    return input_day


def check_columns(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """Every column that the declaration reads is there; none that it writes is. Names are compared as Spark does."""
    known = _known_columns(enrichment, columns)
    for where, column in _columns_read(enrichment):
        if column.lower() not in known:
            close = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.3)
            hint = f"Did you mean {known[close[0]]!r}?" if close else f"It has: {', '.join(known.values())}."
            raise DeclarationError(
                f"{enrichment.name}: {where}: no column {column!r} in {enrichment.input.path}. {hint}"
            )
    for lookup in enrichment.lookups:
        for column in written_columns(lookup):
            if column.lower() in known:
                where = f"{enrichment.name}: lookup {lookup.name}: returns"
                raise DeclarationError(f"{where}: {column!r} exists in the input. {_rename(lookup, column)}")
    for column in _columns_kept(enrichment):
        if column.lower() in known:
            raise DeclarationError(
                f"{enrichment.name}: input: {known[column.lower()]!r} is a column that Tidegate writes. Rename it."
            )


def _known_columns(enrichment: Enrichment, columns: Iterable[str]) -> dict[str, str]:
    """The columns by their names in lower case. Raises DeclarationError for names that Spark cannot tell apart."""
    known: dict[str, str] = {}
    for column in columns:
        for mark, called in ((".", "dot"), ("`", "backtick")):  # Spark's own for a field of a struct, and for quoting
            if mark in column:
                raise DeclarationError(
                    f"{enrichment.name}: input: {column!r} has a {called} in its name. Rename the column."
                )
        if column.lower() in known:
            raise DeclarationError(
                f"{enrichment.name}: input: {known[column.lower()]!r} and {column!r} are one name to Spark. Rename one."
            )
        known[column.lower()] = column
    return known


def _columns_read(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Where the declaration names a column of the input, and which."""
    for lookup in enrichment.lookups:
        for name, expression in lookup.keys.items():
            for column in sorted(columns_in(f"keys.{name}", expression)):
                yield f"lookup {lookup.name}: keys.{name}", column
    yield from (("input: row_id", column) for column in enrichment.input.row_id)
    yield from (("pii", column) for column in enrichment.pii)
    yield from (("key", column) for column in enrichment.key)
    if enrichment.event_time is not None:
        yield "event_time", enrichment.event_time.column


def _columns_kept(enrichment: Enrichment) -> Iterator[str]:
    """The audit columns, which no input may bring; its source file and row number it may."""
    yield from (column for column in ROW_COLUMNS if column not in SOURCE_IDENTITY)
    for lookup in enrichment.lookups:
        yield from audit_columns(lookup.name)
        yield key(lookup.name)


def _rename(lookup: Lookup, column: str) -> str:
    kind = {answer.name: answer.spark_type for answer in lookup.columns}.get(column)
    if kind is None:
        return f"Rename the lookup: its name {lookup.name!r} is the prefix."
    new = f"{lookup.name}_{column}"
    if isinstance(lookup, HttpLookup):
        path = lookup.paths.get(column, f"$.{column}")
        return f'Rename it here: returns="{new} {kind}", paths={{"{new}": "{path}"}}.'
    if isinstance(lookup, SqlLookup):
        return f'Rename it here: returns="{new} {kind}", and give the table a view with that column.'
    return f'Rename it here: returns="{new} {kind}", and in what the function gives.'


def check_partition(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """The day's folder gives the table its partition column; the files must not have another one of that name."""
    name = enrichment.input.partition
    if name.lower() in {column.lower() for column in columns}:
        raise DeclarationError(
            f"{enrichment.name}: input: the files hold a column {name!r}, and so do their folders' names. "
            "Leave it out of the files, or call the folders otherwise (Input.partition)."
        )


def check_event_time(enrichment: Enrichment, schema: pa.Schema) -> None:
    if enrichment.event_time is None:
        return
    name = next(name for name in schema.names if name.lower() == enrichment.event_time.column.lower())
    kind = schema.field(name).type
    if not pa.types.is_timestamp(kind):
        raise DeclarationError(f"{enrichment.name}: event_time: {name!r} is {kind}; it must be a timestamp.")


async def check_services(enrichment: Enrichment) -> None:
    """Secrets are set, services accept a connection, tables have their columns. Nothing is asked of a service."""
    for lookup in enrichment.lookups:
        try:
            if lookup.http_service is not None:
                service = lookup.http_service
                for variable in lookup.variables():
                    _require_secret(lookup, variable)
                _require_fitting_secrets(lookup, service)
                await _reach_service(service)
            elif isinstance(lookup, SqlLookup):
                _require_secret(lookup, lookup.url)
                from jobs.callers.sql_inspection import inspect  # SQLAlchemy: for declarations that need it

                await inspect(lookup)
        except (DeclarationError, RunStopped) as error:
            raise type(error)(f"{enrichment.name}: {error}") from error


def _require_secret(lookup: Lookup, value: str | Env) -> None:
    try:
        resolve(value)
    except DeclarationError as error:
        raise DeclarationError(f"lookup {lookup.name}: {error}") from error


def _require_fitting_secrets(lookup: Lookup, service: Service) -> None:
    from jobs.callers.authorizing import authorizer  # aiohttp: for declarations that need it
    from jobs.callers.transport import Transport

    try:
        authorizer(service.auth, service.name)
        Transport(service)
    except DeclarationError as error:
        raise DeclarationError(f"lookup {lookup.name}: {error}") from error


async def _reach_service(service: Service) -> None:
    """The service accepts a connection; or its proxy, which may be the only way there."""
    from jobs.callers.transport import Transport

    proxy = Transport(service).proxy_for(service.base_url)
    if proxy is None:
        await _reach(service.name, service.base_url, service.shown_url)
    else:
        address = str(proxy.origin())
        await _reach(service.name, address, f"its proxy {address}")


async def _reach(service: str, url: str, shown: str) -> None:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    started = time.monotonic()
    for tried in range(1, TRIES + 1):
        try:
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except UnicodeError as error:
            raise DeclarationError(f"service {service}: {shown} has no name of a host: {error}.") from error
        except OSError as error:  # a time-out and an unknown name are OSErrors too
            if tried == TRIES:
                seconds = time.monotonic() - started
                what = f"cannot be reached: {error}"
                if isinstance(error, ConnectionRefusedError | TimeoutError):
                    refused = isinstance(error, ConnectionRefusedError)
                    what = "refused the connection" if refused else "did not take a connection"
                raise RunStopped(
                    f"service {service}: {shown} {what} ({TRIES} tries in {seconds:.1f} s). "
                    "Nothing was called, nothing was written."
                ) from error
            await asyncio.sleep(PAUSE)
        else:
            writer.close()
            return
