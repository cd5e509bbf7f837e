"""Promises that hold for a table in a folder and for one on an object store."""

import pytest

FOLDER, STORE = "folder", "object store"


def everywhere(fixture):
    """A test whose `fixture` makes its table in a folder, then on an object store."""
    on_store = pytest.param(STORE, marks=pytest.mark.process)  # the store is a server
    return pytest.mark.parametrize(fixture, [FOLDER, on_store], indirect=True)


def place_of(request, folder):
    """For the fixture of such a test: where its tables lie."""
    return folder if getattr(request, "param", FOLDER) == FOLDER else request.getfixturevalue("s3").bucket
