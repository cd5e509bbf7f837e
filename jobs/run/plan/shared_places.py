"""Refuses a run whose tasks, on other machines, do not see the driver's places."""

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.run.engines.engine import Engine
from jobs.storage.urls import absolute, is_url
from jobs.storage.work_folders import work_folder
from jobs.task.seen_files import code_digest, look_around

OTHER_CODE = (
    "another version of Tidegate than the driver. Install the driver's version there, or make the "
    "zip of packages anew with `tidegate pack`."
)
PACKAGE = __name__.partition(".")[0]  # `tidegate` in the wheel
MARK = ".seen-{}"  # a file by which a task knows a folder of the driver's


def require_shared_places(engine: Engine, enrichment: Enrichment, input_day: InputDay) -> None:
    """Run a short task for each slot of the executors.

    The task checks the code on its host, the folders that the driver and the tasks must share, and
    whether it sees the first file of the input.

    Raises:
        DeclarationError: A folder is not shared, or a host has other code; the message says what to
            do.
    """
    folders = _folders(enrichment)
    files = {
        absolute(file): _unseen_input(file) for file in input_day.files[:1] if not is_url(file)
    }
    with contextlib.ExitStack() as tokens:
        for folder, unseen in folders.items():
            files[tokens.enter_context(_token(Path(folder)))] = unseen
        expected = code_digest()
        for host, code, hidden in _look_around(engine, enrichment.name, tuple(files)):
            if code != expected:
                raise DeclarationError(
                    f"{enrichment.name}: {host}, on which tasks run, has {OTHER_CODE}"
                )
            if hidden:
                place, rest = files[hidden[0]]
                raise DeclarationError(
                    f"{enrichment.name}: {place}: {host}, on which tasks run, does not see {rest}"
                )


def _look_around(
    engine: Engine, enrichment: str, files: tuple[str, ...]
) -> list[tuple[str, str, list[str]]]:
    try:
        return engine.stage().run(lambda _slot, _facts: look_around(files), range(engine.slots))
    except Exception as error:
        if re.search(
            rf"Can't get attribute .* on <module '{PACKAGE}\b|No module named '{PACKAGE}\b",
            str(error),
        ):
            raise DeclarationError(
                f"{enrichment}: a host on which tasks run has {OTHER_CODE}"
            ) from error
        raise


def _folders(enrichment: Enrichment) -> dict[str, tuple[str, str]]:
    """Return the folders, each with its field, and the end of the message for a host that does
    not see it.
    """
    found = {}
    table = enrichment.output.path
    if not is_url(table):
        folder = absolute(str(work_folder(table)))
        cure = (
            'Publish to an object store (Output(path="s3://...")), or let all hosts share '
            f"{folder}."
        )
        found[folder] = ("output", f"{folder}, where tasks write the rows of the table. {cure}")
    if enrichment.ledger is not None and not is_url(enrichment.ledger.path):
        folder = absolute(enrichment.ledger.path)
        cure = (
            'Keep the ledger on an object store (Ledger(path="s3://...")), or let all hosts share '
            "this folder."
        )
        found[folder] = ("ledger", f"{folder}. {cure}")
    return found


def _unseen_input(file: str) -> tuple[str, str]:
    folder = str(Path(absolute(file)).parent)
    return (
        "input",
        f"{folder}. Put the input on an object store, or let all hosts share this folder.",
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
