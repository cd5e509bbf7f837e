"""Detects table formats, whose log decides which files and rows of a folder are live."""

import os
from collections.abc import Iterator

from jobs.errors import DeclarationError
from jobs.storage.stored_files import files_in, folders_in
from jobs.storage.urls import is_url

CURES = {
    "a Delta": 'Input(format="delta")',
    "an Iceberg": 'Input(format="iceberg", table="catalog.namespace.table")',
}


def refuse_table_formats(folder: str, root: str) -> None:
    """Refuse files of a day that belong to a Delta, Iceberg or Hudi table.

    Args:
        folder: The day's folder in `root`, which need not exist.
        root: The folder of the input.

    Raises:
        DeclarationError: They belong to such a table.
    """
    places = [folder]
    if not is_url(folder):  # the walk up from a day passes its root, but not where a link leads
        places += [os.path.realpath(folder), os.path.realpath(root)]
    listed: set[str] = set()
    for place in places:
        for log, kind in _logs_above(place, listed):
            declared = f"declare it by {CURES[kind]}, or " if kind in CURES else ""
            raise DeclarationError(
                f"input: {log} makes {root} part of {kind} table, whose files also hold deleted "
                f"rows; {declared}write the rows of each day to Parquet files in a folder of their "
                "own, and name that folder in Input.path."
            )


def _logs_above(place: str, listed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the logs in a folder and in its parents up to a possible table root.

    Skips the folders that are in `listed` already, and adds to it.
    """
    while True:
        real = os.path.realpath(place)
        folders = [] if real in listed else folders_in(place or ".")
        listed.add(real)
        inside = f"{place.rstrip('/')}/" if place else ""
        if "_delta_log" in folders:
            yield f"{inside}_delta_log", "a Delta"
        if ".hoodie" in folders:
            yield f"{inside}.hoodie", "a Hudi"
        if "metadata" in folders and any(
            ".metadata.json" in file.name for file in files_in(f"{inside}metadata")
        ):
            yield f"{inside}metadata", "an Iceberg"
        above, name = os.path.split(place)
        if "=" not in name and name != "data":  # partitions, and Iceberg's folder of files
            return
        place = above
