"""Checks before Spark starts: declaration against input, secrets, services, table."""

import asyncio
import contextlib
import difflib
import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from jobs.declare.chains import readable_columns
from jobs.declare.enrichment import Enrichment, written_columns
from jobs.declare.finding.extras import require_extra
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.services import Service
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import Env, resolve
from jobs.declare.values.key_expressions import key_type, spark_type
from jobs.errors import DeclarationError, RunStopped
from jobs.input.day import InputDay, find_input
from jobs.input.same_values import refuse_old_dates
from jobs.run.coordinator.run_leases import check_limits
from jobs.run.engines.engine import LOCAL, LocalEngine, chosen_engine
from jobs.schema.columns import ROW_COLUMNS, SOURCE_IDENTITY, audit_columns, key
from jobs.storage.stored_files import has_files
from jobs.storage.urls import absolute, below, is_circle, is_url
from jobs.storage.work_folders import RUNS, work_folder, work_place

if TYPE_CHECKING:
    from jobs.tables.delta.type_check import OpenTable

TRIES = 3
PAUSE = 0.5  # s between them
PATTERN = re.compile(r"[*?\[\]{}\\]")
PERCENT = re.compile("%[0-9A-Fa-f]{2}")
# columns that a run adds to those of the input
OWN_KEYS = re.compile(r"__key_\d+_\d+|__partition_of_frame")
# columns of a file's row, as Spark and the checks name them
OF_FILES = ("_metadata", "_uri", "_row")


def preflight(
    enrichment: Enrichment,
    day: str,
    *,
    engine: str | None = None,
    elsewhere: bool = False,
    calls: bool = True,
) -> InputDay:
    """Checks everything that needs neither Spark nor a call. calls: whether the run makes any, so
    that its services must be there. engine: as in `steps`.

    Raises DeclarationError, and RunStopped for a service that is down, which may recover before a
    restart.
    """
    # imports deltalake, which definitions load without
    from jobs.tables.delta.type_check import published_table

    published = published_table(enrichment)
    input_day = find_day(enrichment, day, published, elsewhere=elsewhere)
    check_input(enrichment, input_day, day, published, engine=engine, calls=calls)
    return input_day


def find_day(
    enrichment: Enrichment,
    day: str,
    published: "OpenTable | None" = None,
    *,
    elsewhere: bool = False,
) -> InputDay:
    """Finds the input of a day, with the types of the published table, as `find_input`."""
    from jobs.tables.delta.type_check import published_columns, published_table

    columns = published_columns(published or published_table(enrichment))
    return find_input(enrichment, day, columns, elsewhere=elsewhere)


def check_input(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    published: "OpenTable | None" = None,
    *,
    engine: str | None = None,
    calls: bool = True,
) -> None:
    """Runs the preflight of files that are found: all of a day, or those of a micro-batch."""
    for step in steps(enrichment, input_day, day, engine, published, calls=calls):
        step()


def run_folder(enrichment: Enrichment, run_id: str, *, on_store: bool = False) -> str:
    """Returns the folder of a run's files, outside the days' folders.

    Args:
        enrichment: The declaration.
        run_id: Names the folder.
        on_store: Whether the folder is on the store that holds the table.
    """
    return absolute(below(work_place(enrichment.output.path, on_store=on_store), RUNS, run_id))


def require_new_run(enrichment: Enrichment, run_id: str, *, on_store: bool = False) -> None:
    """Raises DeclarationError if a run of this id has written before."""
    folder = run_folder(enrichment, run_id, on_store=on_store)
    if has_files(folder):
        raise DeclarationError(
            f"run-id {run_id!r} was used before: {folder} exists. Every run needs one of its own."
        )


def steps(
    enrichment: Enrichment,
    input_day: InputDay | None,
    day: str | None,
    engine: str | None = None,
    published: "OpenTable | None" = None,
    *,
    calls: bool = True,
) -> Iterator[Callable[[], object]]:
    """Yields the checks besides those of the input files, in order; each raises DeclarationError or
    RunStopped.

    Args:
        enrichment: The declaration.
        input_day: None if the input cannot be read: checks that need it are left out.
        day: The day.
        engine: That of the run; by default the engine that the environment chooses.
        published: Opens the published table, if the caller uses it too.
        calls: Whether the run makes any, so that its services are checked.
    """
    # they import deltalake, which definitions load without
    from jobs.tables.delta.type_check import check_types
    from jobs.tables.derived.summary_sql import check_summaries
    from jobs.tables.shown.shown_elsewhere import check_shown

    if is_url(enrichment.output.path):
        yield lambda: require_extra("s3", f"{enrichment.name}: output: {enrichment.output.path}")
    if input_day is not None and day is not None:
        yield lambda: check_paths(enrichment, input_day)
        yield lambda: check_columns(enrichment, input_day.names)
        yield lambda: check_files_columns(enrichment, input_day.names)
        if enrichment.input.only_changed:
            yield lambda: refuse_old_dates(input_day.files)
        yield lambda: check_event_time(enrichment, input_day.schema)
        yield lambda: check_types(enrichment, input_day, published)
        yield lambda: check_shown(enrichment, input_day)
        yield lambda: check_summaries(enrichment, input_day, day)
        yield lambda: check_chained(enrichment, input_day)
        yield lambda: _check_engine(enrichment, input_day, engine)
    for lookup in enrichment.lookups if calls else ():
        yield functools.partial(
            _check_service, enrichment, lookup, None if input_day is None else input_day.schema
        )
    yield functools.partial(check_service_limits, enrichment)


def check_paths(enrichment: Enrichment, input_day: InputDay) -> None:
    """Checks that the files of input, output and ledger can be opened by their paths."""
    output = absolute(str(work_folder(enrichment.output.path)))
    paths = [("input", absolute(file)) for file in input_day.files if not is_url(file)]
    paths.append(("output", output))
    wrong = [
        f"{where}: {path} has {found[0]!r}, which Spark takes for a pattern. Rename it."
        for where, path in paths
        if (found := PATTERN.search(path))
    ]
    ledger = [] if enrichment.ledger is None else [("ledger", enrichment.ledger.path)]
    wrong += [
        f"{where}: {path} is a circle of links. Remove one of them."
        for where, path in (("output", output), *ledger)
        if is_circle(path)
    ]
    if found := PERCENT.search(output):
        wrong.append(
            f"output: {output} has {found[0]!r}, which Delta takes for one character. Rename it."
        )
    DeclarationError.raise_for(f"{enrichment.name}: {message}" for message in wrong)


def check_columns(enrichment: Enrichment, columns: Iterable[str]) -> None:
    known = _known_columns(enrichment, columns)
    missing = _missing(_columns_read(enrichment), known, enrichment.input.place)
    wrong = (*missing, *_columns_twice(enrichment, known))
    DeclarationError.raise_for(f"{enrichment.name}: {message}" for message in wrong)


def check_spark_frame(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """Checks the columns of a Spark frame, which all go through the tasks and their files."""
    known = _known_columns(enrichment, columns)
    wrong = list(_missing(_columns_of_keys(enrichment), known, "the frame"))
    wrong += _columns_twice(enrichment, known)
    wrong += [_is_written(known[name]) for name in SOURCE_IDENTITY if name in known]
    DeclarationError.raise_for(f"{enrichment.name}: {message}" for message in wrong)


def check_frame(enrichment: Enrichment, columns: Iterable[Any]) -> list[str]:
    """Finds the columns of a frame that the keys read.

    Args:
        enrichment: As declared.
        columns: Names; pandas allows any object as a name.

    Returns:
        Their names, in the frame's spelling.

    Raises:
        DeclarationError: A column is missing or ambiguous, or has the name of an answer.
    """
    known: dict[str, str] = {}
    twice = set()
    for column in columns:
        if isinstance(column, str):
            twice |= {column.lower()} & known.keys()
            known.setdefault(column.lower(), column)
    read = list(_columns_of_keys(enrichment))
    wrong = list(_missing(read, known, "the frame"))
    kept = {column.lower() for column in (*_columns_kept(enrichment), *SOURCE_IDENTITY)}
    wrong += [
        f"{where}: {_is_written(column)}"
        for where, column in read
        if column.lower() in kept or OWN_KEYS.fullmatch(column.lower())
    ]
    wrong += [
        f"{where}: several columns of the frame are named {column!r}, as case does not count. "
        "Rename one."
        for where, column in read
        if column.lower() in twice
    ]
    wrong += _answers_twice(enrichment, known)
    DeclarationError.raise_for(f"{enrichment.name}: {message}" for message in wrong)
    return list(dict.fromkeys(known[column.lower()] for _, column in read))


def _missing(
    read: Iterable[tuple[str, str]], known: Mapping[str, str], place: str
) -> Iterator[str]:
    for where, column in read:
        if column.lower() not in known:
            close = difflib.get_close_matches(column.lower(), known, n=1, cutoff=0.3)
            hint = (
                f"Did you mean {known[close[0]]!r}?"
                if close
                else f"It has: {', '.join(known.values()) or 'none'}."
            )
            yield f"{where}: no column {column!r} in {place}. {hint}"


def _answers_twice(enrichment: Enrichment, known: Mapping[str, str]) -> Iterator[str]:
    for lookup in enrichment.lookups:
        for column in written_columns(lookup):
            if column.lower() in known:
                yield (
                    f"lookup {lookup.name}: returns: {column!r} exists in the input. "
                    f"{_rename(lookup, column)}"
                )
    for choice in enrichment.choices:
        for column in (one.name for one in choice.published()):
            if column.lower() in known:
                yield f"waterfall {choice.name}: {column!r} exists in the input. Rename it there."


def _columns_twice(enrichment: Enrichment, known: Mapping[str, str]) -> Iterator[str]:
    yield from _answers_twice(enrichment, known)
    for column in _columns_kept(enrichment):
        if column.lower() in known:
            yield f"input: {_is_written(known[column.lower()])}"


def _is_written(column: str) -> str:
    return f"{column!r} is a column that Tidegate writes. Rename it."


def _known_columns(enrichment: Enrichment, columns: Iterable[str]) -> dict[str, str]:
    """Returns the columns by lower-case name. Raises DeclarationError for unusable names."""
    known: dict[str, str] = {}
    wrong = []
    for column in columns:
        if column == "*" or OWN_KEYS.fullmatch(column.lower()):
            wrong.append(
                f"{column!r} means something else to {'Spark' if column == '*' else 'a run'}. "
                "Rename the column."
            )
        # Spark uses them for a field of a struct, and for quoting
        for mark, called in ((".", "dot"), ("`", "backtick")):
            if mark in column:
                wrong.append(f"{column!r} has a {called} in its name. Rename the column.")
        if column.lower() in known:
            wrong.append(
                f"{known[column.lower()]!r} and {column!r} differ only in case, which Spark "
                "ignores. Rename one."
            )
        known[column.lower()] = column
    DeclarationError.raise_for(f"{enrichment.name}: input: {message}" for message in wrong)
    return known


def _columns_of_keys(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    """Yields the columns of the input that keys and conditions read."""
    answers: set[str] = set()
    for lookup in enrichment.lookups:
        for field, column in lookup.columns_read():
            if column.lower() not in answers:
                yield f"lookup {lookup.name}: {field}", column
        answers |= {column.lower() for column in readable_columns(lookup)}


def _columns_read(enrichment: Enrichment) -> Iterator[tuple[str, str]]:
    yield from _columns_of_keys(enrichment)
    yield from (("input: row_id", column) for column in enrichment.input.row_id)
    yield from (("pii", column) for column in enrichment.pii)
    yield from (("key", column) for column in enrichment.key)
    if enrichment.event_time is not None:
        yield "event_time", enrichment.event_time.column


def _columns_kept(enrichment: Enrichment) -> Iterator[str]:
    """Yields the audit columns, which no input may have, except source file and row number."""
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
        path = lookup.answer_path(column)
        return f'Rename it here: returns="{new} {kind}", paths={{"{new}": "{path}"}}.'
    if isinstance(lookup, SqlLookup):
        return (
            f'Rename it here: returns="{new} {kind}", and give the table a view with that column.'
        )
    return f'Rename it here: returns="{new} {kind}", and in what the function gives.'


def check_files_columns(enrichment: Enrichment, columns: Iterable[str]) -> None:
    """Refuses columns of the files with names that Spark or Tidegate uses for each row."""
    known = {column.lower(): column for column in columns}
    wrong = []
    # the day's folder gives the table its partition column
    if enrichment.input.partition.lower() in known:
        wrong.append(
            f"the files hold a column {enrichment.input.partition!r}, and so do their folders' "
            "names. "
            "Leave it out of the files, or call the folders otherwise (Input.partition)."
        )
    wrong += [
        f"{known[name]!r} is a name under which Spark and Tidegate keep where a row came from. "
        "Rename the column."
        for name in (*SOURCE_IDENTITY, *OF_FILES)
        if name in known
    ]
    DeclarationError.raise_for(f"{enrichment.name}: input: {message}" for message in wrong)


def check_event_time(enrichment: Enrichment, schema: pa.Schema) -> None:
    if enrichment.event_time is None:
        return
    name = next(
        (name for name in schema.names if name.lower() == enrichment.event_time.column.lower()),
        None,
    )
    if name is None:
        return  # check_columns reports it
    kind = schema.field(name).type
    if not pa.types.is_timestamp(kind):
        raise DeclarationError(
            f"{enrichment.name}: event_time: {name!r} is {kind}; it must be a timestamp."
        )


def check_chained(enrichment: Enrichment, input_day: InputDay) -> None:
    """Raises DeclarationError for chains that no engine can run on this input."""
    if enrichment.has_chains:
        try:
            check_columns(enrichment, input_day.names)
        except DeclarationError:  # already reported
            return
        # imports pyspark, which checks for Spark do not need
        from jobs.run.rows.chain_check import require_arrow_keys

        require_arrow_keys(enrichment, input_day)


def _check_engine(enrichment: Enrichment, input_day: InputDay, option: str | None) -> None:
    """Raises DeclarationError for what the chosen engine cannot run."""
    if chosen_engine(option) == LOCAL:
        try:
            check_columns(enrichment, input_day.names)
        except DeclarationError:  # already reported
            return
        require_extra("spark", "the local engine")
        # imports pyspark, which checks for Spark do not need
        from jobs.run.rows.local_rows import LocalRows

        LocalRows.of(LocalEngine("check"), enrichment, input_day)


def check_service_limits(enrichment: Enrichment, check: Callable[..., None] = check_limits) -> None:
    """Checks the limits of an enrichment's services, and its budgets, by a check of run_leases."""
    try:
        for lookup in enrichment.lookups:
            service_identity(lookup)
    except DeclarationError:
        return  # a variable is not set, which the check of the service reports
    with _naming(enrichment):
        check(enrichment.lookups, tuple((enrichment.name, budget) for budget in enrichment.budget))


@contextlib.contextmanager
def _naming(enrichment: Enrichment) -> Iterator[None]:
    try:
        yield
    except (DeclarationError, RunStopped) as error:
        raise type(error)(f"{enrichment.name}: {error}") from error


def _check_service(enrichment: Enrichment, lookup: Lookup, columns: pa.Schema | None) -> None:
    asyncio.run(check_service(enrichment, lookup, columns))


async def check_service(
    enrichment: Enrichment, lookup: Lookup, columns: pa.Schema | None = None
) -> None:
    """Checks that the service of a lookup can be used. columns: of the input, if it can be read."""
    try:
        await _check_service_of(enrichment, lookup, columns)
    except RunStopped:
        if not lookup.spills_outage:
            raise


async def _check_service_of(
    enrichment: Enrichment, lookup: Lookup, columns: pa.Schema | None
) -> None:
    with _naming(enrichment):
        if lookup.http_service is not None:
            service = lookup.http_service
            for variable in lookup.variables():
                _require_secret(lookup, variable)
            _require_fitting_secrets(lookup, service)
            await _reach_service(service)
        elif isinstance(lookup, SqlLookup):
            _require_secret(lookup, lookup.url)
            # SQLAlchemy: for declarations that need it
            from jobs.clients.sql.sql_inspection import inspect

            await inspect(lookup, _key_types(lookup, columns))


def _key_types(lookup: Lookup, columns: pa.Schema | None) -> dict[str, str | None]:
    known = {} if columns is None else {one.name.lower(): spark_type(one.type) for one in columns}
    return {name: key_type(expression, known) for name, expression in lookup.keys.items()}


def _require_secret(lookup: Lookup, value: str | Env) -> None:
    try:
        resolve(value)
    except DeclarationError as error:
        raise DeclarationError(f"lookup {lookup.name}: {error}") from error


def _require_fitting_secrets(lookup: Lookup, service: Service) -> None:
    from jobs.clients.http.authorizing import authorizer  # aiohttp: for declarations that need it
    from jobs.clients.http.transport import Transport

    try:
        authorizer(service.auth, service.name)
        Transport(service)
    except DeclarationError as error:
        raise DeclarationError(f"lookup {lookup.name}: {error}") from error


async def _reach_service(service: Service) -> None:
    from jobs.clients.http.transport import Transport

    proxy = Transport(service).proxy_for(service.base_url)
    if proxy is None:
        await _reach(service.name, service.base_url, service.shown_url)
    else:
        address = str(proxy.origin())
        await _reach(service.name, address, f"its proxy {address}")


async def _reach(
    service: str, url: str, shown: str, clock: Callable[[], float] = time.monotonic
) -> None:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    started = clock()
    for attempt in range(1, TRIES + 1):
        try:
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except UnicodeError as error:
            raise DeclarationError(
                f"service {service}: {shown} has no name of a host: {error}."
            ) from error
        except OSError as error:  # a timeout and an unknown name are OSErrors too
            if attempt == TRIES:
                seconds = clock() - started
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
