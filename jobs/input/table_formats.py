"""Detects table formats, whose log decides which files and rows of a folder are live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobs.errors import DeclarationError


def refuse_table_formats(folder: Path, root: Path) -> None:
    """Raise DeclarationError if the files of a day belong to a Delta, Iceberg or Hudi table.

    Args:
        folder: The day's folder; it need not exist.
        root: The input's folder, which contains the days' folders.
    """
    for start in (folder, folder.resolve(), root, root.resolve()):
        for log, kind in _logs_above(start):
            declared = 'declare it by Input(format="delta"), or ' if kind == "a Delta" else ""
            raise DeclarationError(
                f"input: {log} makes {root} part of {kind} table, whose files also hold deleted rows; {declared}write "
                "the rows of each day to Parquet files in a folder of their own, and name that folder in Input.path."
            )


def _logs_above(place: Path) -> Iterator[tuple[Path, str]]:
    """The logs in a folder and in its parents up to a possible table root."""
    while True:
        if (place / "_delta_log").is_dir():
            yield place / "_delta_log", "a Delta"
        if (place / ".hoodie").is_dir():
            yield place / ".hoodie", "a Hudi"
        if any(place.glob("metadata/*.metadata.json*")):
            yield place / "metadata", "an Iceberg"
        if "=" not in place.name and place.name != "data":  # partitions, and Iceberg's folder of files
            return
        place = place.parent
