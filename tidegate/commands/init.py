"""`tidegate init`: makes a new project with an enrichment that runs."""

import argparse
import json
import os
import re
import runpy
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.errors import DeclarationError
from tidegate.commands.command import RIGHT, Command

CALLED = "my_project"  # the template's name
# by the value of --with: the folder whose files are added to the template's, and the files of the
# template that they replace
KINDS = {"model": ("template_model", ("orders.py", "test_orders.py"))}
# under their real names they would apply to this repository
RENAMED = {"gitignore": ".gitignore", "env": ".env"}
UNFINISHED = ".tidegate-init-"  # begins the name of the folder that holds what is not moved yet


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder to make; its name becomes the project's"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--openapi",
        type=Path,
        metavar="FILE",
        help="OpenAPI document of the service that the enrichment calls",
    )
    parser.add_argument(
        "--operation",
        metavar="NAME",
        help="with --openapi: operation to call, by its operationId or as 'GET /path/{id}'",
    )
    kind.add_argument(
        "--with",
        dest="kind",
        choices=sorted(KINDS),
        help="model: an enrichment that asks a language model",
    )


def _run(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise DeclarationError(
            f"{name!r} cannot be a project's name: letters, digits, _ and - only, a letter first."
        )
    if not folder.is_dir() and os.path.lexists(folder):
        raise DeclarationError(
            f"{folder} is not a folder; name an empty folder, or a path that does not exist."
        )
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if any(name.startswith(UNFINISHED) for name in names):
        raise DeclarationError(
            f"{folder} has part of a project, of an init that was killed or is still at work. "
            "Delete all that is in it, then repeat this command."
        )
    if names:
        raise DeclarationError(
            f"{folder} is not empty; name an empty folder, or a path that does not exist."
        )
    if options.operation and not options.openapi:
        raise DeclarationError(
            "--operation is a part of the document that --openapi names; give --openapi too."
        )
    if options.openapi:
        _make_from_openapi(options.openapi, options.operation, folder, name)
    else:
        _make_sample(options.kind, folder, name)
    return RIGHT


def _make_sample(kind: str | None, folder: Path, name: str) -> None:
    added, replaced = KINDS.get(kind or "", (None, ()))
    package = resources.files("tidegate")
    with _built(folder) as made:
        _copy(package / "template", made, name, without=replaced)
        if added is not None:
            _copy(package / added, made, name)
        runpy.run_path(str(made / "sample.py"))["write_day"](made)
    first = "orders" if added is None else "reviews"
    print(
        f"{folder} is a project with one enrichment, enrichments/{first}.py. Next: cd "
        f"{shlex.quote(str(folder))} && make demo"
    )


def _make_from_openapi(document: Path, operation: str | None, folder: Path, name: str) -> None:
    from jobs.commands.describing.openapi_declaration import describe
    from jobs.commands.describing.openapi_document import OpenApi

    made = describe(OpenApi(document), operation)
    template = resources.files("tidegate") / "template"
    samples = ("orders.py", "tests", "sample.py", "Makefile", "README.md", "env")
    day = Path("data", "raw", made.name, f"date={datetime.now(UTC):%Y-%m-%d}")
    lines = [f"{variable}={value}\n" for variable, value in made.variables.items()]
    with _built(folder) as place:
        _copy(template, place, name, without=samples)
        (place / "enrichments" / f"{made.name}.py").write_text(made.code, encoding="utf-8")
        (place / ".env").write_text("".join(lines), encoding="utf-8")
        (place / day).mkdir(parents=True)
        (place / day / "part-0.jsonl").write_text(f"{json.dumps(made.row)}\n", encoding="utf-8")
    print(f"{folder} is a project with enrichments/{made.name}.py, which asks {made.asks}.")
    for remark in made.remarks:
        print(remark)
    if made.others:
        print(f"Other operations, for --operation: {', '.join(made.others)}")
    if unset := [variable for variable, value in made.variables.items() if not value]:
        print(f"Write {' and '.join(unset)} into {folder}/.env.")
    print(
        f"Write keys of your own into {folder / day}/part-0.jsonl. Next: cd "
        f"{shlex.quote(str(folder))} && tidegate check && tidegate try {made.name}"
    )


@contextmanager
def _built(folder: Path) -> Iterator[Path]:
    """Give a place to write; what the body wrote is moved into the folder once it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=UNFINISHED, dir=folder) as place:
        yield Path(place)
        for path in Path(place).iterdir():
            path.rename(folder / path.name)


def _copy(source: Traversable, target: Path, name: str, *, without: Collection[str] = ()) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name == "__pycache__" or path.name in without:
            continue
        if path.is_dir():
            _copy(path, target / path.name, name, without=without)
        else:
            (target / RENAMED.get(path.name, path.name)).write_text(
                path.read_text(encoding="utf-8").replace(CALLED, name), encoding="utf-8"
            )


COMMAND = Command(_add_arguments, _run)
