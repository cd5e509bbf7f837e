"""What a cluster's executors need of us, in one zip for spark-submit's --py-files (docs/cluster.md).

Executors import it without unpacking. What these packages import from outside (pyarrow, aiohttp, sqlalchemy and the
like) must be in the executors' Python already, or travel as an archive.
"""

import importlib.util
import zipfile
from collections.abc import Iterable
from pathlib import Path

from jobs.errors import DeclarationError

OWN = __name__.partition(".")[0]  # inside `tidegate` where the wheel is installed
NEEDED = tuple(dict.fromkeys(("asyncio_core", OWN, "tidegate")))
FIRST_MOMENT = (1980, 1, 1, 0, 0, 0)  # of a zip: the same code makes the same bytes


def package(target: Path, packages: Iterable[str] = ()) -> Path:
    """Write the zip, whole or not at all. Raises DeclarationError for a name that is no importable package."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.draft")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in dict.fromkeys((*NEEDED, *packages)):
            for path, source in sorted(_files(name)):
                archive.writestr(zipfile.ZipInfo(path, FIRST_MOMENT), source.read_bytes(), zipfile.ZIP_DEFLATED)
    draft.replace(target)
    return target.resolve()


def _files(name: str) -> list[tuple[str, Path]]:
    found = None if "." in name else importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise DeclarationError(f"{name!r} is no package or module that can be imported here; name a top-level one.")
    origin = Path(found.origin)
    if found.submodule_search_locations is None:
        return [(origin.name, origin)]
    root = origin.parent
    wanted = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [(path.relative_to(root.parent).as_posix(), path) for path in wanted]
