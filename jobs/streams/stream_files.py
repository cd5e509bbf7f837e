"""Finds the files of a micro-batch in the notes of Spark's file source in the stream's checkpoint.

A frame of `foreachBatch` is cut off from its files, so that it has no `_metadata`. The checkpoint
names them: a batch's offset is a number in the log of the source, and an entry of this log is a
file.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jobs.declare.enrichment import Enrichment
from jobs.declare.inputs import Input
from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError, TidegateError
from jobs.input.day_folder import refuse_unread_files
from jobs.run.plan.preflight import PATTERN
from jobs.storage.urls import is_url

NONE_BEFORE = -1  # offset before the first batch


def check_streamable(enrichment: Enrichment) -> None:
    """Raise DeclarationError for an input or an output that no stream can use."""
    declared = enrichment.input
    if declared.format not in ("parquet", "delta") or is_url(declared.path):
        place = f"is at {declared.path}" if is_url(declared.path) else f"is {declared.format}"
        raise DeclarationError(
            f"{enrichment.name}: input: a stream reads folders of Parquet files or a Delta table, "
            "on a disk, and this "
            f"input {place}. Run its days: `tidegate run {enrichment.name} --day ...`."
        )
    if pattern := PATTERN.search(folder := str(Path(declared.path).absolute())):
        raise DeclarationError(
            f"{enrichment.name}: input: {folder} has {pattern[0]!r}, which Spark takes for a "
            "pattern, so it would watch other folders. Rename it."
        )
    if not isinstance(declared.every, str):
        raise DeclarationError(
            f"{enrichment.name}: input: every names partitions, each of which its next run "
            f"replaces, and a stream only adds rows. Run them: `tidegate run {enrichment.name}`."
        )
    if is_url(enrichment.output.path):
        raise DeclarationError(
            f"{enrichment.name}: output: a stream publishes to a folder on a disk, and this one is "
            "at "
            f"{enrichment.output.path}. Run its days: `tidegate run {enrichment.name} --day ...`."
        )
    if enrichment.output.parquet:
        raise DeclarationError(
            f"{enrichment.name}: output: parquet: each batch of a stream would write the whole day "
            f"to {enrichment.output.parquet} anew. Leave it out, or run its days: `tidegate run "
            f"{enrichment.name} --day ...`."
        )
    if declared.format == "parquet":
        refuse_unread_files(declared)


def query_id(checkpoint: Path) -> str:
    """Return Spark's id of the query; a new checkpoint gets a new id."""
    return str(_json(checkpoint / "metadata")[-1]["id"])


def files_of_batch(checkpoint: Path, batch: int) -> list[Path]:
    """Return the files of a batch that has begun, by their names."""
    first, last = (_offset(checkpoint, number) for number in (batch - 1, batch))
    entries = [
        entry for number in range(first + 1, last + 1) for entry in _entries(checkpoint, number)
    ]
    return sorted(map(_path, entries))


def files_before(checkpoint: Path, batch: int) -> Iterator[Path]:
    """Yield the files of all batches before this batch."""
    last = _offset(checkpoint, batch - 1)
    merged = max(
        (int(path.stem) for path in _log(checkpoint).glob("*.compact")), default=NONE_BEFORE
    )
    if merged > NONE_BEFORE:
        yield from (
            _path(entry) for entry in _json(_merged(checkpoint, merged)) if entry["batchId"] <= last
        )
    for number in range(merged + 1, last + 1):
        yield from map(_path, _entries(checkpoint, number))


def by_day(files: Sequence[Path], declared: Input) -> dict[str, list[Path]]:
    """Return the files of each day, by day. A folder that is not named after a day is not part of
    the input, as for `tidegate run`.
    """
    found: dict[str, list[Path]] = {}
    for file in files:
        name, _, day = file.parent.name.partition("=")
        if name == declared.partition and is_day(day, declared.every):
            found.setdefault(day, []).append(file)
    return dict(sorted(found.items()))


def _offset(checkpoint: Path, batch: int) -> int:
    if batch < 0:
        return NONE_BEFORE
    return int(_json(checkpoint / "offsets" / str(batch))[-1]["logOffset"])


def _entries(checkpoint: Path, number: int) -> Iterator[dict[str, Any]]:
    """Return the files of a log entry; Spark merges every tenth entry with all before it."""
    alone, merged = _log(checkpoint) / str(number), _merged(checkpoint, number)
    return (
        entry
        for entry in _json(alone if alone.exists() else merged)
        if entry.get("batchId") == number
    )


def _log(checkpoint: Path) -> Path:
    return checkpoint / "sources" / "0"


def _merged(checkpoint: Path, number: int) -> Path:
    return _log(checkpoint) / f"{number}.compact"


def _path(entry: dict[str, Any]) -> Path:
    return Path(unquote(entry["path"].removeprefix("file://")))


def _json(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a checkpoint's file, an object per line, after its version."""
    try:
        return [
            json.loads(line)
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith("{")
        ]
    except (OSError, ValueError) as error:
        raise TidegateError(
            f"{path}, of the stream's checkpoint, cannot be read: {error}. Restore it, or delete "
            "the checkpoint's folder: a new one leaves out the files that the table has rows of."
        ) from error
