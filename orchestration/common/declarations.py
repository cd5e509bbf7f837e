"""Keeps a server's package of declarations current: reads it again once a file has changed."""

import importlib
import importlib.util
import sys
from pathlib import Path

Signature = tuple[tuple[str, int], ...]


class Declarations:
    """A package of declarations whose files may change while the process runs."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._loaded: Signature | None = None

    def refresh(self) -> None:
        """Forget the package's modules if a file of it has changed; the next import reads them."""
        found = self._signature()
        if found != self._loaded:
            for name in [*sys.modules]:
                if name == self.package or name.startswith(f"{self.package}."):
                    del sys.modules[name]
            importlib.invalidate_caches()
            self._loaded = found

    def _signature(self) -> Signature:
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return ()
        folders = spec.submodule_search_locations or () if spec else ()
        paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
        return tuple((str(path), path.stat().st_mtime_ns) for path in paths)
