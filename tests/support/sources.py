"""The product's source files, and what they import."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "asyncio_core",
    "jobs",
    "data_quality",
    "orchestration",
    "enrichments",
    "tidegate",
    "demo",
)


TEMPLATE = ROOT / "tidegate" / "template"  # of a project, whose modules are its own


def modules(package):
    return sorted(path for path in (ROOT / package).rglob("*.py") if TEMPLATE not in path.parents)


def statements(body):
    """Every statement of a body and below it: a tenth of what `ast.walk` finds, which goes into
    expressions.
    """
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()))


@functools.cache
def imports(path):
    """(line, dotted name) of everything that a file imports."""
    found = []
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; write the whole name"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found
