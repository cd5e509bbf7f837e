"""docs/reference.md has every field of every declaration, as the declarations have it."""

import dataclasses
import inspect
from pathlib import Path

import pytest

import tidegate
from tools import reference

PAGE = Path(__file__).parents[2] / reference.PAGE
DECLARED = reference.declared_classes()


def test_the_page_is_as_the_declarations_are():
    assert PAGE.read_text() == reference.page(), "the declarations changed: run `make reference`"


def test_every_declaration_that_users_import_is_on_the_page():
    public = [
        value for name in tidegate.__all__ if inspect.isclass(value := getattr(tidegate, name))
    ]
    assert {one for one in public if dataclasses.is_dataclass(one)} == set(DECLARED)


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.__name__)
def test_every_field_says_what_it_is(declared):
    """Among the Attributes of the class's docstring."""
    assert [name for name, text in reference.described(declared).items() if not text] == []


def test_a_field_is_described_by_all_lines_of_its_attribute():
    described = reference.described(tidegate.HttpLookup)
    assert described["pages"] == "An answer in several pages."
    assert described["echo"].endswith("its connection is not used again.")
