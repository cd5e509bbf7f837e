"""Opens the log of a Delta table, reports damage in a sentence, and syncs the log to disk."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from jobs.declare.values.calendar import Every
from jobs.errors import TidegateError
from jobs.input.delta import unknown_feature
from jobs.storage import durable
from jobs.storage.urls import below, is_url
from jobs.tables.delta.write_errors import delta_errors

FORMAT = 1  # of our tables: what their rows, columns and commits mean (docs/upgrading.md)
FORMAT_NAME = "tidegate.format"
ENTRIES = 5  # of a log on a store until the next checkpoint
ENTRIES_ON_DISK = 100  # Delta's default
LOG = "_delta_log"
COMMIT_TRIES = 20  # against programs that commit meanwhile

Result = TypeVar("Result")

_kept: ContextVar[dict[str, DeltaTable] | None] = ContextVar(
    "tables that are kept open", default=None
)


def checkpoint_settings(table: str) -> dict[str, str]:
    """Return how often a new table writes a checkpoint. On a store each entry since the last
    checkpoint costs other readers two requests.
    """
    return {"delta.checkpointInterval": str(ENTRIES)} if is_url(table) else {}


def commit_hooks(table: str, over: DeltaTable | None) -> PostCommitHookProperties:
    """Return the hooks of a commit on top of this version.

    Delta would list the whole log after each commit, to delete old entries. It can delete none
    before a checkpoint, so it looks only then; on a store `vacuum` does.
    """
    sums_up = over is not None and (over.version() + 1) % ENTRIES_ON_DISK == 0
    return PostCommitHookProperties(cleanup_expired_logs=sums_up and not is_url(table))


def format_mark() -> Transaction:
    """Return the mark for the commit that makes a table. The log keeps the format as a
    transaction, which Delta reads with the table. A table without the mark is of format 1.
    """
    return Transaction(FORMAT_NAME, FORMAT)


def saying_format(metadata: dict[str, str] | None = None) -> CommitProperties:
    """Return the properties of a commit that makes a table, with only the format mark, and this
    metadata.
    """
    return CommitProperties(custom_metadata=metadata, app_transactions=[format_mark()])


def day_type(every: Every) -> PrimitiveType:
    """Return the type of the day's column: that of `jobs.declare.values.calendar.column_value`."""
    return PrimitiveType("date" if every == "day" else "string")


def table_at(path: str) -> DeltaTable | None:
    """Open the current table at this path; return None without a table.

    Raises:
        TidegateError: Its log exists but cannot be read, so that a damaged table does not count as
            missing; or it is of a newer format than this Tidegate knows.
    """
    table = opened(path)
    if table is not None and (written := table.transaction_version(FORMAT_NAME) or 1) > FORMAT:
        raise TidegateError(
            f"table {path} has format {written}, and this Tidegate knows up to {FORMAT}: upgrade "
            "it, or publish to another table."
        )
    return table


def commit_on_top(table: DeltaTable | None, commit: Callable[[], Result]) -> Result:
    """Commit on top of what others commit meanwhile; `table` is None if the commit creates it."""
    if table is None:
        return commit()
    for _ in range(COMMIT_TRIES - 1):
        try:
            return commit()
        except CommitFailedError:
            table.update_incremental()
    return commit()


def opened(path: str) -> DeltaTable | None:
    """Open a table as `table_at` does, without a look at its format: that of the table beside."""
    kept = _kept.get()
    if kept is None or is_url(path):
        return _read(path)
    table = kept.pop(path, None)
    # Delta does not report that a table is gone
    if table is not None and _entry(path, table.version()).exists():
        # after an error the table is read from the start, which reports the error better
        with contextlib.suppress(DeltaError, OSError):
            table.update_incremental()
            kept[path] = table
            return table
    table = _read(path)
    if table is not None:
        kept[path] = table
    return table


@contextmanager
def kept_open(tables: dict[str, DeltaTable]) -> Iterator[None]:
    """Keep the tables that the body opens, so that the next opening reads only new log entries.

    It works for tables on a disk, and for a body that is the only user of these objects. No other
    table may take the place of a kept table.
    """
    before = _kept.set(tables)
    try:
        yield
    finally:
        _kept.reset(before)


def _read(path: str) -> DeltaTable | None:
    try:
        if not is_url(path) and not DeltaTable.is_deltatable(path):
            return None
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        if feature := unknown_feature(error):
            raise TidegateError(
                f"table {path} has the Delta feature {feature}, which Tidegate does not read. Drop "
                "the feature, or move the table away and run its days again, with the ledger's "
                "answers."
            ) from error
        raise TidegateError(
            f"table {path}: its log, {below(path, LOG)}, cannot be read: {delta_errors(error)}. "
            "Start again when it can be. Restore a torn log from a copy; without one move the "
            "table away and run its days again, with the ledger's answers."
        ) from error


@contextmanager
def lasting(table: str) -> Iterator[None]:
    """Sync the body's commits to a table on exit: the entries of its log and their files. An
    object store needs no sync.
    """
    if is_url(table):
        yield
        return
    before = _last_version(table)
    yield
    written: list[Path] = []
    for version in range(before + 1, _last_version(table) + 1):
        entry = _entry(table, version)
        written += filter(durable.is_there, _added(entry))  # a later entry removed the others
        written.append(entry)
    if Path(table, LOG).is_dir():
        to_disk([*written, Path(table, LOG)], Path(table))


def sync_log(table: str) -> None:
    """Sync all commits to a table on a disk, also those that a killed process left unsynced."""
    if not is_url(table):
        to_disk([*Path(table, LOG).glob("*.json"), Path(table, LOG)], Path(table))


def to_disk(paths: Iterable[Path], root: Path) -> None:
    """Sync files or folders and the names of all folders from `root` down to them, each once."""
    synced: set[Path] = set()
    for path in paths:
        for folder in (path, *path.parents):
            if folder not in synced:
                durable.sync(folder)
                synced.add(folder)
            if folder == root.parent:
                break


def _entry(table: str, version: int) -> Path:
    return Path(table, LOG, f"{version:020d}.json")


def _last_version(table: str) -> int:
    """Return the version by the names of log entries since its checkpoint; -1 without a table."""
    try:
        version = int(
            json.loads(Path(table, LOG, "_last_checkpoint").read_text(encoding="utf-8"))["version"]
        )
    except (OSError, ValueError, KeyError):
        version = min((int(entry.stem) for entry in Path(table, LOG).glob("*.json")), default=0) - 1
    while _entry(table, version + 1).exists():
        version += 1
    return version


def _added(entry: Path) -> Iterator[Path]:
    """Yield the files that a log entry adds to its table."""
    for line in entry.read_bytes().splitlines():  # of a text, U+2028 would end a line too
        added = json.loads(line).get("add")
        if added is not None:
            yield Path(entry.parent.parent, unquote(added["path"]))
