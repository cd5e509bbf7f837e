"""Removes unneeded files of a run; `vacuum` removes those that cannot be removed now."""

import contextlib
import shutil
from collections.abc import Container
from pathlib import Path

from jobs.storage import objects
from jobs.storage.urls import below, is_url


def remove_folder(folder: str) -> None:
    """Delete a folder with its content."""
    if is_url(folder):
        remove_others(folder, kept=())
    else:
        shutil.rmtree(folder, ignore_errors=True)


def remove_others(folder: str, *, kept: Container[str]) -> None:
    """Delete the files in a folder whose places are not in `kept`."""
    with contextlib.suppress(OSError):
        if is_url(folder):
            names = [
                listed.name
                for listed in objects.listed(folder)
                if below(folder, listed.name) not in kept
            ]
            if names:
                objects.delete(folder, names)
            return
        for path in Path(folder).iterdir():
            if path.is_file() and str(path) not in kept:
                path.unlink(missing_ok=True)
