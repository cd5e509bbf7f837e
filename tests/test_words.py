"""One word per thing: the words that the glossary replaced stay out of names."""

import ast
import re

import pytest

from tests.support.sources import PACKAGES, ROOT, modules

RETIRED = frozenset(
    {"clash", "desk", "driven", "driving", "holding", "in_time", "lacking", "late_files", "mine", "ours"}
    | {"published_elsewhere", "ruled", "said", "sated", "spelt", "standing", "starting_again", "tellable", "telling"}
    | {"told", "tried", "troubled", "trying", "untold", "upkeep"}
)


def words_of(name):
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def names(tree):
    """Names that a file gives: of functions, classes, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_has_a_retired_word(package):
    wrong = []
    for path in modules(package):
        found = {name for name in names(ast.parse(path.read_text())) if words_of(name) & RETIRED or name in RETIRED}
        found |= {path.stem} & RETIRED | ({path.stem} if words_of(path.stem) & RETIRED else set())
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(found)]
    assert wrong == []


def test_a_planted_word_is_found():
    assert set(names(ast.parse("def last_said(told): spelt = 1"))) == {"last_said", "told", "spelt"}
    assert words_of("DeskLine") & RETIRED == {"desk"}
