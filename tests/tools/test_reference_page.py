"""docs/reference.md has every field of every declaration, as the declarations have it."""

import dataclasses
import inspect
from pathlib import Path

import pytest

import tidegate
from tools import reference

PAGE = Path(__file__).parents[2] / reference.PAGE
DECLARED = reference.declared_classes()


def test_the_reference_page_matches_the_declarations():
    assert PAGE.read_text() == reference.page(), "the declarations changed: run `make reference`"


def test_each_public_declaration_is_on_the_reference_page():
    public = [
        value for name in tidegate.__all__ if inspect.isclass(value := getattr(tidegate, name))
    ]
    assert {declared for declared in public if dataclasses.is_dataclass(declared)} == set(DECLARED)


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.__name__)
def test_each_field_has_a_description(declared):
    """Among the Attributes of the class's docstring."""
    assert [name for name, text in reference.described(declared).items() if not text] == []


def test_a_field_description_includes_all_lines_of_its_docstring():
    described = reference.described(tidegate.HttpLookup)
    assert described["pages"] == "An answer in several pages."
    assert described["echo"].endswith("its connection is not used again.")
