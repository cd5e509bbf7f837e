"""Writes docs/promises.md from the names of the tests: python -m tools.promises."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/promises.md"
HEAD = """# Promises

Every test is named for its promise, so this page is made of their names: `make promises` writes it,
and a test holds that it is current.

[Simulated nights](simulation.md) try calls, the ledger, limits, vendor jobs and publishing of
several runs at once under every fault. They do not try Spark's JVM, SQL drivers, PostgreSQL,
Iceberg, tables on a store, what deltalake does inside a call, signals, web pages, windows,
approved plans, how far answers drift, several hosts with clocks of their own, or `forget` beside a
run of its lookup: that page has [the whole list](simulation.md#what-is-not). Only the tests below
hold these.
"""


def render() -> str:
    """Render the page: a chapter for each folder of tests, a paragraph for each file, a line for
    each promise.
    """
    parts = [HEAD]
    chapter = ""
    for path in sorted(
        (ROOT / "tests").rglob("test_*.py"), key=lambda path: (path.parent, path.name)
    ):
        tree = ast.parse(path.read_text())
        promises = [_sentence(node) for node in _tests(tree)]
        if not promises:
            continue
        folder = path.parent.relative_to(ROOT / "tests").as_posix()
        if folder != chapter:
            chapter = folder
            parts.append(f"\n## {'The whole house' if folder == '.' else folder}\n")
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        parts.append(
            f"\n`{path.name}`: {summary}\n\n" + "".join(f"- {promise}\n" for promise in promises)
        )
    return "".join(parts)


def _tests(tree: ast.Module) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.name.startswith("test_")
    ]


def _sentence(name: str) -> str:
    words = name.removeprefix("test_").replace("_", " ")
    return words[0].upper() + words[1:]


if __name__ == "__main__":
    PAGE.write_text(render())
