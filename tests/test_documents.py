"""Documents name only files, commands and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = "asyncio_core|jobs|data_quality|orchestration|enrichments|tidegate|demo|benchmarks|tests|docs"
PATHS = re.compile(rf"\b((?:{OURS})/[\w/.-]*\w\.(?:py|md|yaml|toml|jsonl))\b")
TARGETS = re.compile(r"\bmake ([a-z][a-z-]*)\b")
LINKS = re.compile(r"\]\((?!https?:|#)([^)#]+)")
TESTS = re.compile(r"\b(test_\w+)\b(?!\.py|/)")
MAKEFILE = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def tests_there_are():
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
    return found


def code_of(text):
    """What stands in backticks or code blocks: only there is a word a command."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_files_that_exist(document):
    text = document.read_text()
    named = {match for match in PATHS.findall(text) if "your" not in match and "my_" not in match}
    linked = {match for match in LINKS.findall(text)}
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [name for name in linked if not (document.parent / name).exists()]
    assert sorted(missing) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_commands_that_make_has(document):
    assert sorted(set(TARGETS.findall(code_of(document.read_text()))) - set(MAKEFILE)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_tests_that_exist(document):
    assert sorted(set(TESTS.findall(document.read_text())) - tests_there_are()) == []


def test_ci_calls_the_test_command_of_the_readme():
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
