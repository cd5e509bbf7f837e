"""The size of an input before it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobs.declare.inputs import TABLES
from jobs.errors import DeclarationError
from jobs.input.day import files_in
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    from jobs.declare.inputs import Input


def measure_files(declared: Input, days: Iterable[str]) -> int | None:
    """Return the size of all files of these days, or None.

    It is None where requests to a store or the log of a table would tell, and for a folder that
    cannot be listed.
    """
    if is_url(declared.path) or declared.format in TABLES:
        return None
    try:
        return sum(file.size for day in days for file in files_in(declared, day))
    except DeclarationError:  # the run says so
        return None
