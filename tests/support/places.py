"""Promises that hold for a table in a folder and for one on an object store."""

import pytest

FOLDER, STORE = "folder", "object store"


def everywhere(fixture, *, on_store=()):
    """A test whose `fixture` makes its table or its ledger in a folder, then on an object store.
    on_store: a mark of the second turn, as `pytest.mark.proof` where it takes long.
    """
    marks = [pytest.mark.process, *([on_store] if on_store else [])]  # the store is a server
    return pytest.mark.parametrize(
        fixture, [FOLDER, pytest.param(STORE, marks=marks)], indirect=True
    )


def place_of(request, folder, *, in_spark=False):
    """For the fixture of such a test: where its tables lie. in_spark: the tasks of the tests' Spark
    reach it too.
    """
    if getattr(request, "param", FOLDER) == FOLDER:
        return folder
    s3 = request.getfixturevalue("s3")
    if in_spark:
        for name, value in s3.environment().items():
            request.getfixturevalue("monkeypatch").setitem(
                request.getfixturevalue("spark").sparkContext.environment, name, value
            )
    return s3.bucket
