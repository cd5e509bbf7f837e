from datetime import date

import pytest

from demo import data


@pytest.fixture(scope="session")
def days():
    return [date(2013, 1, 10), date(2013, 1, 11)]


@pytest.fixture(scope="session")
def root(tmp_path_factory, days):
    """The demo's files for two days, prepared once. Nobody writes here."""
    root = tmp_path_factory.mktemp("data")
    data.prepare(root, days)
    return root


@pytest.fixture(scope="session")
def year():
    return data.flights()
