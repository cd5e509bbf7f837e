"""Looks, on the host of a task, for files that the driver sees, and for the code that it runs."""

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files as files_of
from importlib.resources.abc import Traversable

import asyncio_core

HELD = 0.2  # s for which a task keeps its slot, so that each slot gets a task
# packages whose objects travel between the driver and its tasks
PACKAGES = (asyncio_core.__name__, __name__.partition(".task.")[0])


def look_around(
    files: Sequence[str], sleep: Callable[[float], None] = time.sleep
) -> tuple[str, str, list[str]]:
    """Return this host, a digest of its tasks' code, and the files that it does not see."""
    sleep(HELD)
    hidden = [file for file in files if not os.path.exists(file)]  # noqa: PTH110  # paths of the task's host
    return socket.gethostname(), code_digest(), hidden


def code_digest() -> str:
    """Return a digest of the modules of our packages, which may lie in a folder or in a zip."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for name, module in sorted(_modules(files_of(package), package)):
            digest.update(f"{name}\0".encode())
            digest.update(hashlib.sha256(module).digest())
    return digest.hexdigest()


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
