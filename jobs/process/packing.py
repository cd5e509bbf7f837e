"""Packs the modules that a cluster's executors need into a zip for --py-files (docs/cluster.md).

Executors import it without unpacking. Libraries that these packages import (pyarrow, aiohttp,
sqlalchemy and the like) must already be in the executors' Python, or be sent as an archive.
"""

import importlib.util
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from jobs.errors import DeclarationError

OWN = __name__.partition(".")[0]  # inside `tidegate` where the wheel is installed
CHECKS = "data_quality"  # inside `tidegate` too
NEEDED = tuple(
    dict.fromkeys(("asyncio_core", OWN, "tidegate", *([CHECKS] if OWN == "jobs" else [])))
)
FIRST_MOMENT = (1980, 1, 1, 0, 0, 0)  # of a zip: the same code makes the same bytes


@dataclass(frozen=True)
class Packed:
    """The zip, and the files of the user's packages that are not in it."""

    zip: Path
    left_out: tuple[str, ...]


def package(target: Path, packages: Iterable[str] = (), data: Sequence[str] = ()) -> Packed:
    """Write the modules of the packages to a zip, whole or not at all, and no other file.

    A package's folder may also hold files that must not go to a cluster: `.env`, `.git`, keys. So a
    file is taken if Python can import it by name, or if `data` asks for it. A link is taken if it
    stays in its package.

    Args:
        target: The zip.
        packages: Top-level packages and modules, besides ours.
        data: Patterns of further files to take, such as `prices.csv` or `*.json`. No pattern takes
            a hidden file.

    Returns:
        The zip, and the files that are not in it.

    Raises:
        DeclarationError: A name is not an importable package or module.
    """
    taken: dict[str, Path] = {}
    left_out: list[str] = []
    for name in dict.fromkeys((*NEEDED, *packages)):
        folder, paths = _files(name)
        for path in paths:
            if _is_wanted(folder, path, data):
                taken[path.as_posix()] = Path(folder, path)
            elif name not in NEEDED:
                left_out.append(path.as_posix())
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, source in sorted(taken.items()):
                archive.writestr(
                    zipfile.ZipInfo(name, FIRST_MOMENT), source.read_bytes(), zipfile.ZIP_DEFLATED
                )
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return Packed(target.resolve(), tuple(sorted(left_out)))


def _is_wanted(folder: Path, path: PurePath, data: Sequence[str]) -> bool:
    """Return whether to take the file; a link's target must be in the same package."""
    if len(path.parts) == 1:
        return True  # a module that the user names
    package, target = Path(folder, path.parts[0]).resolve(), Path(folder, path).resolve()
    if not target.is_relative_to(package):
        return False
    both = (path, PurePath(path.parts[0], target.relative_to(package)))
    if all(map(_is_module, both)):
        return True
    return not any(map(_is_hidden, both)) and any(path.match(pattern) for pattern in data)


def _is_module(path: PurePath) -> bool:
    """Return whether Python can import the file by name."""
    return path.suffix == ".py" and all(part.isidentifier() for part in path.with_suffix("").parts)


def _is_hidden(path: PurePath) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _files(name: str) -> tuple[Path, list[PurePath]]:
    """Return the folder that holds a package or module, and its files below that folder."""
    found = None if "." in name else importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise DeclarationError(
            f"{name!r} is not a package or module that can be imported here; name a top-level one."
        )
    origin = Path(found.origin)
    if found.submodule_search_locations is None:
        return origin.parent, [PurePath(origin.name)]
    folder, paths = origin.parent.parent, []
    for inner, folders, names in os.walk(origin.parent):  # os.walk follows no link
        folders[:] = [name for name in folders if name != "__pycache__"]
        files = (Path(inner, name) for name in names)
        paths += [PurePath(file.relative_to(folder)) for file in files if file.is_file()]
    return folder, sorted(paths)
