"""Documents name only files, commands and tests that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

import tidegate
from jobs.declare.finding.loading import load
from jobs.run.plan.column_checks import check_columns
from tests.support.documents import FENCED, blocks
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_text_of_a_list_item_is_indented_as_the_site_requires(document):
    """By four spaces; with fewer the site ends the list, and a command is text."""
    assert re.findall(r"\n\n {1,3}\S.*", BLOCKS.sub("```", document.read_text())) == []


def test_the_site_lists_only_pages_that_exist():
    added = {
        "changelog.md": "CHANGELOG.md",
        "contributing.md": "CONTRIBUTING.md",
        "notebook.md": "docs/frames.ipynb",
    }
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert "index.md" in listed
    assert [name for name in listed if not (ROOT / added.get(name, f"docs/{name}")).exists()] == []


def test_the_text_about_the_crash_picture_has_the_figures_of_the_picture():
    picture = (ROOT / "docs/crash.svg").read_text()
    (said,) = re.findall('aria-label="([^"]*)"', picture)
    figures = re.findall(r"\+ ([\d,]+) again", picture)
    assert re.findall(r"[\d,]*\d", said) == figures
    for name in ("README.md", "docs/index.md"):
        assert f"![{said}](" in (ROOT / name).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_targets_that_the_makefile_has(document):
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


def test_ci_calls_the_commands_of_the_readme():
    called = (ROOT / ".ci/run").read_text()
    (block,) = blocks("README.md", "sh")
    commands = {
        *re.findall("^make [a-z]+", block, re.MULTILINE),
        *re.findall("`(make [a-z]+)`", block),
    }
    assert {command for command in commands if command in called} == {"make check", "make test"}
    assert commands - {"make check", "make test"} == {"make demo"}, "what make proof runs"


REST = """    name="actions",
    input=Input(path="data/raw/actions", row_id=["at"]),
    lookups=[HttpLookup(name="kind", service=Service(name="kinds", url="http://k", max_concurrency=1),
                        request="GET /{k}", keys={"k": "action"}, returns="kind STRING", timeout=1.0)],
    output=Output(path="data/published/actions"),
"""


@pytest.mark.parametrize(
    "block",
    [
        *blocks("docs/inputs.md", "python"),
        *blocks("docs/outputs.md", "python"),
        *blocks("docs/windows.md", "python"),
        *blocks("docs/limits.md", "python"),
    ],
)
def test_each_declaration_of_a_page_is_accepted(block):
    names = {name: getattr(tidegate, name) for name in tidegate.__all__}
    exec(block.replace("    ...,\n", REST), names)


@functools.cache
def reads_of_blocks():
    """Which tests read blocks of code: page -> {language, None for all: words of the test files}.

    A file that reads one section at a time names the sections that it runs.
    """
    found = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        tree = ast.parse(text if "support.documents" in text else "")
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                page, *more = [ast.unparse(arg).strip("\"'") for arg in node.args] or [""]
                is_one = node.func.id == "blocks"
                if is_one or node.func.id == "all_blocks":
                    language = more.pop(0) if is_one else None
                    sections = words if more else None
                    found.setdefault((page, language), []).append(sections)
    return found


RUNNABLE = {"python", "sh", "bash", "sql", "yaml", "dockerfile"}
COMMANDS = re.compile(r"^\s*(tidegate|make|python|pip|export|import|from|select)\b", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_code_block_of_a_document_is_run_by_a_test(document):
    """Or compared, as a file that is printed; a block without a language is no code."""
    page, heading, unread = str(document.relative_to(ROOT)), "", []
    reads = reads_of_blocks()
    for part in re.split(r"^## ", document.read_text(), flags=re.MULTILINE):
        heading = part.partition("\n")[0]
        for _, language, code in FENCED.findall(part):
            taken = reads.get((page, language), []) + reads.get((page, None), [])
            if language in RUNNABLE:
                if not any(sections is None or heading in sections for sections in taken):
                    unread.append(f"{heading}: {language}")
            elif language not in ("", "text") or COMMANDS.search(code):
                unread.append(
                    f"{heading}: name the language of {code[:40]!r}, as {sorted(RUNNABLE)}"
                )
    assert unread == []
