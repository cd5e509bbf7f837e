"""Checks that an enrichment's services can be used: secrets, limits, and whether they answer."""

import asyncio
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pyarrow as pa

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.services import Service
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import resolve
from jobs.declare.values.key_expressions import key_type, spark_type
from jobs.errors import DeclarationError, RunStopped, naming
from jobs.run.coordinator.run_leases import check_limits

TRIES = 3
PAUSE = 0.5  # s between them


def check_service_limits(enrichment: Enrichment, check: Callable[..., None] = check_limits) -> None:
    """Check the limits of an enrichment's services, and its budgets, by a check of run_leases."""
    try:
        for lookup in enrichment.lookups:
            service_identity(lookup)
    except DeclarationError:
        return  # a variable is not set, which the check of the service reports
    with naming(enrichment.name):
        check(enrichment.lookups, tuple((enrichment.name, budget) for budget in enrichment.budget))


def check_service(enrichment: Enrichment, lookup: Lookup, columns: pa.Schema | None = None) -> None:
    """Check that the service of a lookup can be used, with the input's columns, or None if it
    cannot be read.

    Raises:
        DeclarationError: The service cannot be used as declared.
        RunStopped: The service is down, and no later vendor takes its rows.
    """
    try:
        asyncio.run(_check_service(enrichment, lookup, columns))
    except RunStopped:
        if not lookup.spills_outage:
            raise


async def _check_service(enrichment: Enrichment, lookup: Lookup, columns: pa.Schema | None) -> None:
    with naming(enrichment.name):
        if lookup.http_service is not None:
            service = lookup.http_service
            with naming(f"lookup {lookup.name}"):
                for variable in lookup.variables():
                    resolve(variable)
                _require_fitting_secrets(service)
            await _reach_service(service)
        elif isinstance(lookup, SqlLookup):
            with naming(f"lookup {lookup.name}"):
                resolve(lookup.url)
            # SQLAlchemy: for declarations that need it
            from jobs.clients.sql.sql_inspection import inspect

            await inspect(lookup, _key_types(lookup, columns))


def _key_types(lookup: Lookup, columns: pa.Schema | None) -> dict[str, str | None]:
    known = (
        {}
        if columns is None
        else {column.name.lower(): spark_type(column.type) for column in columns}
    )
    return {name: key_type(expression, known) for name, expression in lookup.keys.items()}


def _require_fitting_secrets(service: Service) -> None:
    from jobs.clients.http.authorizing import authorizer  # aiohttp: for declarations that need it
    from jobs.clients.http.transport import Transport

    authorizer(service.auth, service.name)
    Transport(service)


async def _reach_service(service: Service) -> None:
    from jobs.clients.http.transport import Transport

    transport = Transport(service)
    proxy = transport.proxy_for(service.base_url)
    if proxy is None:
        await _reach(service.name, service.base_url, service.shown_url, transport.ssl)
    else:
        address = str(proxy.origin())
        await _reach(service.name, address, f"its proxy {address}")


async def _reach(
    service: str,
    url: str,
    shown: str,
    tls: ssl.SSLContext | bool = True,  # noqa: FBT001, FBT002  # as aiohttp takes it
    clock: Callable[[], float] = time.monotonic,
) -> None:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    started = clock()
    for attempt in range(1, TRIES + 1):
        try:
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(
                    parts.hostname, port, ssl=tls if parts.scheme == "https" else None
                )
        except UnicodeError as error:
            raise DeclarationError(
                f"service {service}: {shown} has no valid host name: {error}."
            ) from error
        except OSError as error:  # a timeout and an unknown name are OSErrors too
            if attempt == TRIES:
                seconds = clock() - started
                fault = f"cannot be reached: {str(error) or type(error).__name__}"
                if isinstance(error, ConnectionRefusedError | TimeoutError):
                    refused = isinstance(error, ConnectionRefusedError)
                    fault = "refused the connection" if refused else "did not take a connection"
                raise RunStopped(
                    f"service {service}: {shown} {fault} ({TRIES} tries in {seconds:.1f} s). "
                    "Nothing was called, nothing was written."
                ) from error
            await asyncio.sleep(PAUSE)
        else:
            writer.transport.abort()  # without waiting for a goodbye of TLS
            return
