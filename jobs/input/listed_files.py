"""The files of an input before it is read."""

from collections.abc import Iterable

from jobs.declare.inputs import TABLES, Input
from jobs.errors import DeclarationError
from jobs.input.day import files_in
from jobs.storage.stored_files import StoredFile
from jobs.storage.urls import is_url


def list_here(declared: Input, days: Iterable[str]) -> dict[str, list[StoredFile]] | None:
    """Return the files of these days, by day, or None.

    It is None where requests to a store or the log of a table would tell, and for a folder that
    cannot be listed.
    """
    if is_url(declared.path) or declared.format in TABLES:
        return None
    try:
        return {day: files_in(declared, day) for day in days}
    except DeclarationError:  # the run says so
        return None
