"""The product's source files, and what they import."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("asyncio_core", "jobs", "data_quality", "orchestration", "enrichments", "tidegate", "demo")


TEMPLATE = ROOT / "tidegate" / "template"  # of a project, whose modules are its own


def modules(package):
    return sorted(path for path in (ROOT / package).rglob("*.py") if TEMPLATE not in path.parents)


def imports(path):
    """(line, dotted name) of everything that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; write the whole name"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
