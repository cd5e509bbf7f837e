"""One word per thing: the words that the glossary replaced stay out of names, and translated
phrases out of texts.
"""

import ast
import functools
import re

import pytest

from tests.support.sources import PACKAGES, ROOT, modules

RETIRED = frozenset(
    {
        "clash",
        "desk",
        "driven",
        "driving",
        "holding",
        "in_time",
        "lacking",
        "late_files",
        "mine",
        "ours",
    }
    | {
        "published_elsewhere",
        "ruled",
        "said",
        "sated",
        "spelt",
        "standing",
        "starting_again",
        "tellable",
        "telling",
    }
    | {"told", "tried", "troubled", "trying", "unsaid", "untold", "upkeep"}
)
# phrases that read like a translation: the program tells nobody, it reports
PHRASES = re.compile(
    r"\b(?:is|are|was|were) told\b|\bbefalls?\b|\brefuses us\b|\bas it were\b|\bhas "
    r"heard\b|\bhears of\b|"
    r"\bis no (?:key|name|table|answer|number|list)\b|\bcall (?:it|them) otherwise\b|\bpays? for "
    r"it anew\b",
    re.IGNORECASE,
)
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def words_of(name):
    parts = name if name.isupper() else re.sub(r"([A-Z])", r"_\1", name)
    return set(re.findall(r"[a-z]+", parts.lower()))


@functools.cache
def is_retired(name):
    return name in RETIRED or not RETIRED.isdisjoint(words_of(name))


def names(tree):
    """Names that a file gives: of functions, classes, arguments, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_has_a_retired_word(package):
    wrong = []
    for path in modules(package):
        text = path.read_text()
        suspects = {name for name in re.findall(r"\w+", text) if is_retired(name)}
        found = suspects & set(names(ast.parse(text))) if suspects else set()
        found |= {path.stem} if is_retired(path.stem) else set()
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(found)]
    assert wrong == []


def test_a_planted_retired_word_is_found():
    assert set(names(ast.parse("def last_said(told): spelt = 1"))) == {"last_said", "told", "spelt"}
    assert words_of("DeskLine") & RETIRED == {"desk"}
    assert words_of("WAIT_SAID_AFTER") & RETIRED == {"said"}
    assert set(names(ast.parse("self._has_told = 1"))) == {"_has_told"}


def phrases(path):
    text = re.sub(r"`[^`]*`", "", path.read_text())  # names of tests and quotations
    return [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for found in PHRASES.finditer(" ".join(text.split()))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_document_has_a_translated_phrase(document):
    assert phrases(document) == []


@pytest.mark.parametrize("package", ["asyncio_core", "data_quality", "demo"])
def test_no_text_of_a_package_has_a_translated_phrase(package):
    assert [found for path in modules(package) for found in phrases(path)] == []


@pytest.mark.parametrize(
    "room", ["declare", "input", "ledger", "clients", "task", "tables", "run", "commands"]
)
def test_no_text_of_a_room_has_a_translated_phrase(room):
    assert [found for path in (ROOT / "jobs" / room).rglob("*.py") for found in phrases(path)] == []


def test_a_planted_phrase_is_found():
    assert PHRASES.search("a day that Dagster is told of")
    assert not PHRASES.search("the run told the driver nothing")
