"""The names inside the wheel: it takes none from a project but `tidegate` and `asyncio_core`.

setuptools builds the wheel by this class (pyproject.toml). The checkout, and an editable install of
it, keep the names of the folders: there `jobs` is `jobs`; in the wheel it is `tidegate._jobs`, so
that a project's `jobs` is another module (docs/adr/0009-names-in-the-wheel.md).
"""

import ast
import shutil
from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

OUTER = "tidegate"
INNER = ("jobs", "data_quality", "orchestration")
LEFT_OUT = ("demo", "enrichments")


class BuildWithOwnNames(build_py):  # type: ignore[misc]
    """Copies the packages as setuptools does, then moves the inner packages into OUTER."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.editable_mode:
            self.packages: list[str] = [
                name for name in self.packages if name.partition(".")[0] not in LEFT_OUT
            ]

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        shutil.rmtree(built, ignore_errors=True)  # what an earlier build left would be packed too
        super().run()
        for name in INNER:
            shutil.move(built / name, built / OUTER / f"_{name}")
        for path in (built / OUTER).rglob("*.py"):
            path.write_text(with_inner_names(path.read_text()))


def with_inner_names(source: str) -> str:
    """Return the source with the names of the wheel in its imports.

    Raises:
        ValueError: An import binds the name of an inner package itself, as `import jobs.schema`
            does.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        at = getattr(node, "lineno", 0) - 1
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in INNER:
            lines[at] = lines[at].replace(
                f"from {node.module} ", f"from {OUTER}._{node.module} ", 1
            )
        elif isinstance(node, ast.Import):
            bound = [alias.name for alias in node.names if alias.name.partition(".")[0] in INNER]
            if bound:
                raise ValueError(
                    f"`import {bound[0]}` cannot be renamed; write `from ... import ...`."
                )
    return "".join(lines)
