"""The filesystem of a place, and the path in it."""

import pytest

from jobs.storage.stored_files import open_filesystem


@pytest.mark.parametrize(("place", "path"), [
    ("abfss://lake@account.dfs.core.windows.net/raw/orders", "lake/raw/orders"),
    ("gs://anonymous@lake/raw/orders", "lake/raw/orders"),
    ("gs://lake/raw/50%20 é", "lake/raw/50%20 é"),
])  # fmt: skip
def test_a_path_begins_with_the_name_of_the_bucket_and_nothing_else_of_the_host(place, path):
    assert open_filesystem(place)[1] == path
