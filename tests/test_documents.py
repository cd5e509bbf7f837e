"""Documents name only files, commands and tests that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

import tidegate
from jobs.declare.enrichment import load
from jobs.run.plan.preflight import check_columns
from tests.support.documents import blocks
from tests.support.sources import statements

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OURS = "asyncio_core|jobs|data_quality|orchestration|enrichments|tidegate|demo|benchmarks|tests|docs|tools"
PATHS = re.compile(rf"\b((?:{OURS})/[\w/.-]*\w\.(?:py|md|yaml|toml|jsonl))\b")
TARGETS = re.compile(r"\bmake ([a-z][a-z-]*)\b")
LINKS = re.compile(r"\]\((?!https?:|#)([^)#]+)")
ANCHORS = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
BLOCKS = re.compile("```.*?```", re.DOTALL)
TESTS = re.compile(r"\b(test_\w+)\b(?!\.py|/)")
MAKEFILE = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


@functools.cache
def names_in_tests():
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found.add(path.stem)
        for node in statements(ast.parse(path.read_text()).body):
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
    linked = set(LINKS.findall(text))
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [name for name in linked if not (document.parent / name).exists()]
    assert sorted(missing) == []


def headings(document):
    """The addresses of a document's headings, as GitHub and the site make them."""
    lines = re.findall(r"^#+ (.*)$", BLOCKS.sub("", document.read_text()), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line).lower() for line in lines]
    return {re.sub(r"[^\w\- ]", "", line).strip().replace(" ", "-") for line in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_links_only_to_headings_that_exist(document):
    wrong = []
    for name, anchor in ANCHORS.findall(BLOCKS.sub("", document.read_text())):
        target = document.parent / name if name else document
        if target.suffix == ".md" and anchor not in headings(target):
            wrong.append(f"{name}#{anchor}")
    assert wrong == []


def test_the_site_lists_only_pages_that_exist():
    added = {
        "changelog.md": "CHANGELOG.md",
        "contributing.md": "CONTRIBUTING.md",
        "notebook.md": "docs/frames.ipynb",
    }
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert "index.md" in listed
    assert [one for one in listed if not (ROOT / added.get(one, f"docs/{one}")).exists()] == []


def test_the_picture_of_the_crash_is_described_by_its_figures():
    picture = (ROOT / "docs/crash.svg").read_text()
    (said,) = re.findall('aria-label="([^"]*)"', picture)
    figures = re.findall(r"\+ ([\d,]+) again", picture)
    assert re.findall(r"[\d,]*\d", said) == figures
    for name in ("README.md", "docs/index.md"):
        assert f"![{said}](" in (ROOT / name).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_commands_that_make_has(document):
    assert sorted(set(TARGETS.findall(code_of(document.read_text()))) - set(MAKEFILE)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_tests_that_exist(document):
    assert sorted(set(TESTS.findall(document.read_text())) - names_in_tests()) == []


def test_the_example_of_the_readme_is_a_whole_enrichment(tmp_path, monkeypatch):
    """It loads as it stands, and fits an input of the columns that it reads."""
    (example,) = blocks("README.md", "python")
    (tmp_path / "orders_of_the_readme.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    orders = load("orders_of_the_readme:orders")
    check_columns(orders, ["order_id", "customer_id", "ordered_at"])
    assert orders.facts().lookups[0].returns == (("score", "INT"), ("grade", "STRING"))


@pytest.mark.parametrize("command", ["make check", "make test"])
def test_ci_calls_the_commands_of_the_readme(command):
    assert command in (ROOT / ".ci/run").read_text()
    assert command in (ROOT / "README.md").read_text()


REST = """    name="actions",
    input=Input(path="data/raw/actions", row_id=["at"]),
    lookups=[HttpLookup(name="kind", service=Service(name="kinds", url="http://k", max_concurrency=1),
                        request="GET /{k}", keys={"k": "action"}, returns="kind STRING", timeout=1.0)],
    output=Output(path="data/published/actions"),
"""


@pytest.mark.parametrize(
    ("page", "count"), [("inputs", 2), ("outputs", 2), ("windows", 1), ("limits", 3)]
)
def test_each_declaration_of_a_page_is_accepted(page, count):
    found = blocks(f"docs/{page}.md", "python")
    assert len(found) == count
    for block in found:
        names = {name: getattr(tidegate, name) for name in tidegate.__all__}
        exec(block.replace("    ...,\n", REST), names)
