"""Refuses a run whose tasks, on other machines, do not see the driver's places."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.errors import DeclarationError
from jobs.storage.urls import absolute, is_url
from jobs.storage.work_folders import work_folder
from jobs.task.seen_files import hidden_files

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.run.engines.engine import Engine

MARK = ".seen-{}"  # a file by which a task knows a folder of the driver's


def require_shared_places(engine: Engine, enrichment: Enrichment, input_day: InputDay, *, on_store: bool) -> None:
    """Lets each slot of the executors look at the folders that driver and tasks must share.

    Args:
        engine: Runs tasks on other machines.
        enrichment: As declared.
        input_day: The files that tasks read.
        on_store: Tasks write on the store that holds the table.

    Raises:
        DeclarationError: A folder is not shared; the message says which, and what to do.
    """
    folders = _folders(enrichment, on_store=on_store)
    files = {absolute(file): _of_input(file) for file in input_day.files[:1] if not is_url(file)}
    with contextlib.ExitStack() as tokens:
        for folder, why in folders.items():
            files[tokens.enter_context(_token(Path(folder)))] = why
        if not (named := tuple(files)):
            return
        looked = engine.stage().run(lambda _slot, _facts: hidden_files(named), range(engine.slots))
        for host, hidden in looked:
            for file in hidden:
                raise DeclarationError(f"{enrichment.name}: {files[file].format(host=host)}")


def _folders(enrichment: Enrichment, *, on_store: bool) -> dict[str, str]:
    """Returns the folders, each with the message for a host that does not see it."""
    found = {}
    table = enrichment.output.path
    if not on_store:
        folder = str(work_folder(table).resolve())
        reason = "the driver and they write what streams need" if is_url(table) else "they write the rows of the table"
        cure = f'Publish to an object store (Output(path="s3://...")), or let all hosts share {folder}.'
        if is_url(table):
            cure = f"Leave them out, or let all hosts share {folder} (TIDEGATE_WORK)."
        found[folder] = f"output: {{host}}, on which tasks run, does not see {folder}, where {reason}. {cure}"
    if enrichment.ledger is not None and not is_url(enrichment.ledger.path):
        folder = str(Path(enrichment.ledger.path).resolve())
        found[folder] = (
            f"ledger: {{host}}, on which tasks run, does not see {folder}. Keep the ledger on an object store "
            '(Ledger(path="s3://...")), or let all hosts share this folder.'
        )
    return found


def _of_input(file: str) -> str:
    folder = str(Path(file).resolve().parent)
    return (
        f"input: {{host}}, on which tasks run, does not see {folder}. Put the input on an object store, or let all "
        "hosts share this folder."
    )


@contextlib.contextmanager
def _token(folder: Path, token: Callable[[int], str] = secrets.token_hex) -> Iterator[str]:
    file = folder / MARK.format(token(8))
    folder.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        yield str(file)
    finally:
        file.unlink(missing_ok=True)
