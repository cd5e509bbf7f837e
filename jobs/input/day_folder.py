"""The folder of a day: the files that are read, and its other entries."""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa

from jobs.declare.inputs import Input
from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError, NoInput
from jobs.input.table_formats import refuse_table_formats
from jobs.storage import stored_files
from jobs.storage.stored_files import StoredFile
from jobs.storage.urls import is_url
from jobs.wording import listed

ENDINGS = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".json.gz", ".jsonl.gz"),
}
HIDDEN = ("_", ".")  # how names begin that no reader of tables looks at
CHECKSUM = ".crc"

Found = TypeVar("Found")


@dataclass(frozen=True)
class DayFolder:
    """The folder of a day.

    Attributes:
        files: The files of the declared format, in the order of their names.
        folders: The names of the folders in it.
        others: The names of its other files.
    """

    files: tuple[StoredFile, ...]
    folders: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, declared: Input, day: str) -> Self:
        """List a folder, which need not exist.

        Raises:
            DeclarationError: It cannot be listed, or a link in it leads nowhere.
        """
        _refuse_broken_links(declared, declared.folder(day))
        files, folders = list_or_refuse(stored_files.entries_in, declared.folder(day))
        files = [file for file in files if not file.name.startswith(HIDDEN)]
        return cls(
            tuple(file for file in files if is_of_format(file.name, declared)),
            tuple(name for name in folders if not name.startswith(HIDDEN)),
            tuple(
                file.name
                for file in files
                if not is_of_format(file.name, declared)
                and not file.name.lower().endswith(CHECKSUM)
            ),
        )


def is_of_format(name: str, declared: Input) -> bool:
    """Return whether a file has an ending of the declared format, in any case."""
    return name.lower().endswith(ENDINGS[declared.format])


def find_in_folder(declared: Input, day: str) -> tuple[tuple[StoredFile, ...], tuple[str, ...]]:
    """Return the files of a day, and the names of entries that are not read.

    Raises:
        NoInput: The folder holds no file of the format.
        DeclarationError: It belongs to a table, or has files in folders below it.
    """
    folder, found = declared.folder(day), DayFolder.of(declared, day)
    refuse_table_formats(folder, declared.path)
    _refuse_deeper_files(declared, folder, found)
    if not found.files:
        raise _without_files(declared, day, found)
    if colon := next((file for file in found.files if ":" in file.name), None):
        raise DeclarationError(
            f"input: {colon.place} has a ':' in its name, which Spark takes for an address. Rename "
            "the file."
        )
    folders = [f"{name}/" for name in (*found.folders, *_folders_of_no_day(declared))]
    return found.files, (*found.others, *folders)


def days_there(declared: Input) -> list[str]:
    """Return the days that have a folder.

    Raises:
        DeclarationError: The folder of the input cannot be listed.
    """
    prefix = f"{declared.partition}="
    names = list_or_refuse(stored_files.folders_in, declared.path.rstrip("/"))
    days = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return [day for day in days if is_day(day, declared.every)]


def refuse_unread_files(declared: Input) -> None:
    """Refuse an input whose files a reader of the folders of its days would miss, or should not
    read.

    Raises:
        DeclarationError: It belongs to a table, or a day has files in folders below it, or links to
            files that are not there.
    """
    root, days = declared.path.rstrip("/"), days_there(declared)
    refuse_table_formats(root, root)
    for day in days:
        _refuse_deeper_files(declared, declared.folder(day), DayFolder.of(declared, day))


def _refuse_broken_links(declared: Input, folder: str) -> None:
    """Refuse links to files of the format, or to the folder, that are not there.

    Raises:
        DeclarationError: Such a link exists.
    """
    for link in list_or_refuse(stored_files.broken_links_in, folder):
        name = Path(link).name
        if link == folder or (is_of_format(name, declared) and not name.startswith(HIDDEN)):
            raise DeclarationError(
                f"input: {link} is a link to {Path(link).readlink()}, which is not there. Fetch "
                "that, or remove the link."
            )


def _refuse_deeper_files(declared: Input, folder: str, found: DayFolder) -> None:
    """Refuse files of the format in folders below a day, whose rows a run would leave out.

    Raises:
        DeclarationError: Such a file exists.
    """
    for name in found.folders:
        below = f"{folder.rstrip('/')}/{name}"
        deeper = list_or_refuse(stored_files.paths_below, below)
        wanted = [path for path in deeper if is_of_format(path, declared) and not _is_hidden(path)]
        if wanted:
            raise DeclarationError(
                f"input: {below} holds {listed(wanted)}, and a run reads the files in {folder}/ "
                "alone. Move the files "
                "there, or let the folder's name begin with _ to leave them out."
            )


def _is_hidden(path: str) -> bool:
    return any(name.startswith(HIDDEN) for name in path.split("/"))


def _without_files(declared: Input, day: str, found: DayFolder) -> NoInput:
    folder = declared.folder(day)
    if found.others or found.folders or (not is_url(folder) and Path(folder).is_dir()):
        names = [*found.others, *(f"{name}/" for name in found.folders)]
        beside = f" It holds {listed(names)}." if names else ""
        return NoInput(
            f"input: {folder} holds no {' or '.join(ENDINGS[declared.format])} file.{beside}"
        )
    return NoInput(
        f"input: there is no {folder} for {day}; nothing can be "
        f"enriched.{nearest_to(declared, day)}"
    )


def _folders_of_no_day(declared: Input) -> Iterator[str]:
    """Yield folders next to the days whose names give no day, as Hive's for rows without a day."""
    prefix = f"{declared.partition}="
    for name in list_or_refuse(stored_files.folders_in, declared.path.rstrip("/")):
        if name.lower().startswith(prefix.lower()):
            day = name[len(prefix) :]
            if not (name.startswith(prefix) and is_day(day, declared.every)) and not _is_left_out(
                day, declared
            ):
                yield name


def _is_left_out(name: str, declared: Input) -> bool:
    """Return whether a partition has a name that the declaration does not list."""
    return not isinstance(declared.every, str) and bool(
        re.fullmatch(r"[A-Za-z][\w.-]*", name, re.ASCII)
    )


def nearest_to(declared: Input, day: str) -> str:
    """Return a sentence, after a space, with a folder of a similar name; empty without any."""
    prefix, root = f"{declared.partition}=", declared.path.rstrip("/")
    folders = [name for name in list_or_refuse(stored_files.folders_in, root) if "=" in name]
    misnamed = [
        name
        for name in folders
        if not (name.startswith(prefix) and is_day(name.removeprefix(prefix), declared.every))
    ]
    same_day = [name for name in misnamed if _digits(name.rpartition("=")[2]) == _digits(day)]
    close = same_day or difflib.get_close_matches(f"{prefix}{day}", misnamed, n=1, cutoff=0.0)
    if not close:
        return ""
    example = {"day": "a day is named {}YYYY-MM-DD", "hour": "an hour is named {}YYYY-MM-DDTHHZ"}
    kind = example.get(str(declared.every), "a partition is named {}NAME").format(prefix)
    return f" There is {root}/{close[0]}; the folder of {kind} (Input.partition)."


def _digits(text: str) -> str:
    """Return the digits of a date in any format, with missing zeros added."""
    parts = re.findall(r"\d+", text)
    return "".join(part.zfill(2) for part in parts)


def list_or_refuse(names: Callable[[str], Found], folder: str) -> Found:
    """List a folder.

    Raises:
        DeclarationError: It cannot be listed.
        RunStopped: Its store does not answer.
    """
    try:
        return names(folder)
    except (OSError, pa.ArrowException, ValueError) as error:
        kind = stored_files.unreachable_or(DeclarationError, error)
        raise kind(
            f"input: {folder} cannot be listed: {stored_files.error_text(error)}."
        ) from error
