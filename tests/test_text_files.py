"""Programs read and write text as UTF-8, whatever the locale of their machine is."""

import ast

from tests.support.sources import ROOT, modules

PACKAGES = (
    "asyncio_core",
    "data_quality",
    "demo",
    "enrichments",
    "jobs",
    "orchestration",
    "tidegate",
)
READS_OR_WRITES = {"read_text", "write_text"}


def test_every_text_file_is_read_and_written_with_a_named_encoding():
    unnamed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READS_OR_WRITES
        and "encoding" not in {keyword.arg for keyword in node.keywords}
    ]
    assert unnamed == []
