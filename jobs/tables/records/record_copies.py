"""Copies run records to a table's object store, so that every machine has all of them.

Each machine works on the records in its folder: its saved records are copied to the store, and
other machines' records are fetched before a run or a command reads records.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs.errors import TidegateError
from jobs.storage import durable, objects
from jobs.storage.urls import below, is_url

FOLDER = "_records"  # readers of tables ignore names that begin with _
KNOWN = ".copies.json"  # etag of each copy that this folder has
# of a run; nothing else is fetched
RECORD = re.compile(r"[^/.][^/]{0,99}/[^/.][^/]{0,199}\.(json|unwritten)")
AT_ONCE = 8


def save(table: str, folder: Path, record: Path, data: bytes) -> None:
    """Write a record below `folder`, and first its copy at the table's store, if the table is on
    one: after a kill between the two the local record is unchanged, and the copy is fetched. Raises
    TidegateError, and OSError.
    """
    if not is_url(table):
        durable.write(record, data)
        return
    name = record.relative_to(folder).as_posix()
    with _at_store(table):
        tag = objects.write(below(table, FOLDER, name), data)
    durable.write(record, data)
    _remember(folder, {name: tag.get("e_tag", "")})


def read(table: str, folder: Path, record: Path) -> bytes | None:
    """Read a record, from the table's store if the table is on one; None without the record.

    Raises TidegateError, and OSError.
    """
    if not is_url(table):
        return record.read_bytes() if durable.is_there(record) else None
    with _at_store(table):
        found = objects.read(below(table, FOLDER, record.relative_to(folder).as_posix()))
    return None if found is None else found.data


def fetch(table: str, folder: Path) -> None:
    """Bring others' records into `folder`, for a table on a store. Raises TidegateError."""
    if not is_url(table):
        return
    known = _known(folder)
    with _at_store(table), ThreadPoolExecutor(AT_ONCE) as pool:
        new = {
            copy.name: copy.etag
            for copy in objects.listed(below(table, FOLDER))
            if RECORD.fullmatch(copy.name)
            if known.get(copy.name) != copy.etag or not (folder / copy.name).exists()
        }
        contents = pool.map(lambda name: objects.read(below(table, FOLDER, name)), new)
        for name, found in zip(new, contents, strict=True):
            if found is not None:
                durable.write(folder / name, found.data)
    if new:
        _remember(folder, new)


def remove(table: str, folder: Path, record: Path) -> None:
    if is_url(table):
        with _at_store(table):
            objects.delete(below(table, FOLDER), [record.relative_to(folder).as_posix()])


def _known(folder: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((folder / KNOWN).read_text(encoding="utf-8")))
    return {}


def _remember(folder: Path, new: dict[str, str]) -> None:
    durable.write(folder / KNOWN, json.dumps(_known(folder) | new).encode())


@contextlib.contextmanager
def _at_store(table: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TidegateError(
            f"records {below(table, FOLDER)} cannot be read or written: {error}. Start again when "
            "they can be."
        ) from error
