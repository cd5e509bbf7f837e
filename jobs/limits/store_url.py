"""Finds the store of the limits: this machine's file, or what a variable names."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from jobs.declare.finding.extras import require_extra
from jobs.errors import DeclarationError
from jobs.limits.store import LimitStore

Result = TypeVar("Result")

LIMITS_URL = "TIDEGATE_LIMITS_URL"
OFF = "off"
STATE_HOME = "XDG_STATE_HOME"
FOLDER = "tidegate"
MACHINE_ID = Path("/etc/machine-id")
FORMS = "postgresql://user@host/database, file:///path/of/a/file on a disk of this machine, or off"


def machine_id() -> str:
    """Return the id of this machine; empty if it has none."""
    try:
        return MACHINE_ID.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def limits_url(
    environment: Mapping[str, str] = os.environ, machine: Callable[[], str] = machine_id
) -> str:
    """Return the address of the store where runs meet; empty if the variable says `off`.

    The default is a file in the user's state folder, so that all runs of a user on a machine meet.
    Each machine has a separate file, because several machines may share a home: the clocks of two
    machines in one file would end each other's leases and spend budgets.

    Raises:
        DeclarationError: The user has no home folder.
    """
    if url := environment.get(LIMITS_URL):
        return "" if url == OFF else url
    state = environment.get(STATE_HOME)
    try:
        folder = Path(state) if state else Path.home() / ".local" / "state"
        name = (
            f"limits-{hashlib.sha256(found.encode()).hexdigest()[:12]}"
            if (found := machine())
            else "limits"
        )
        return f"file://{(folder / FOLDER / name).absolute()}.sqlite"
    except RuntimeError as error:
        raise DeclarationError(
            f"the limits have no file: this user has no home folder. Set {LIMITS_URL} to {FORMS}."
        ) from error


async def in_store(url: str, step: Callable[[LimitStore], Awaitable[Result]]) -> Result:
    """Return what a step returns for the store, which is open meanwhile. Raises as `open_store`."""
    store = open_store(url)
    try:
        return await step(store)
    finally:
        await store.close()


def open_store(url: str, *, patience: float = 5.0) -> LimitStore:
    """Return the store at postgresql://user@host/database or file:///path, not connected yet, with
    its longest wait in seconds.

    Raises:
        DeclarationError: The address has another form. The error does not show it, as it may hold a
            password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise DeclarationError(
            f"{LIMITS_URL} is not an address: its host or its port is invalid."
        ) from None
    if parts.scheme in ("postgresql", "postgres") and parts.hostname:
        require_extra("postgres", LIMITS_URL)
        from jobs.limits.postgres_store import PostgresStore

        return PostgresStore(url, patience=patience)
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1:
        from jobs.limits.file_store import FileStore

        # a path may contain `?`, `#` and `;`
        return FileStore(url.removeprefix("file://"), patience=patience)
    raise DeclarationError(f"{LIMITS_URL} has another form than {FORMS}.")
