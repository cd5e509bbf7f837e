"""A file of a published table that is lost or torn: each command that reads it names it."""

from pathlib import Path

import pytest

from tidegate.__main__ import main

DAY = "2013-01-10"
PUBLISHED, LETTERS = "towns/runs/*/date=*/*/*.parquet", "towns__dead_letters/*/*/*.parquet"
READERS = {
    "explain": (PUBLISHED, ["explain", "towns", "--row", "number=1"]),
    "diff": (PUBLISHED, ["diff", "towns", DAY]),
    "test": (PUBLISHED, ["test", "towns", "--against", DAY]),
    "replay": (PUBLISHED, ["replay", "towns", "--day", DAY]),
    "forget": (PUBLISHED, ["forget", "weather", "--key", "town=beta"]),
    "dead-letters": (LETTERS, ["dead-letters", "towns"]),
    "replay of letters": (LETTERS, ["replay", "towns", "--day", DAY]),
    "replay by reason": (LETTERS, ["replay", "towns", "--where", "500"]),
}


def lose(file):
    file.unlink()


def tear(file):
    file.write_bytes(file.read_bytes()[:100])


@pytest.mark.process
@pytest.mark.parametrize("harm", [lose, tear])
@pytest.mark.parametrize("reader", READERS)
def test_a_lost_or_torn_file_of_a_table_is_named(local_days, capsys, harm, reader):
    local_days.towns.declare_too(
        "from tidegate import Tolerance", "towns = replace(towns, tolerance=Tolerance(error=1.0))"
    )
    local_days.fails = {"gamma": 500}
    local_days.write_input(DAY, ["alpha", "beta", "gamma"])
    assert local_days.run(DAY, DAY) == 0
    files, command = READERS[reader]
    harmed = max(Path("data/published").glob(files), key=lambda file: file.stat().st_mtime_ns)
    harm(harmed)
    capsys.readouterr()
    assert main([*command, "--package", "declared"]) in (1, 2)
    assert harmed.name in capsys.readouterr().err


CHANGED = """
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Ask:
    async def async_invoke(self, keys):
        return [{"v": 1}]


it = Enrichment(
    name="it",
    input=Input(path="raw", every=["all"], row_id=["id"], rows="changed"),
    lookups=[
        AsyncFunctionLookup(
            name="a", function=Ask, max_concurrency=2, timeout=5.0, keys={"id": "id"},
            returns="v INT",
        )
    ],
    output=Output(path="published"),
)
"""


@pytest.mark.process
@pytest.mark.parametrize("harm", [lose, tear])
def test_changed_rows_over_a_lost_or_torn_file_are_all_rows(project, capsys, harm):
    project.declare(CHANGED)
    project.write("all", {"id": [1, 2]})
    run = ["run", "it", "--day", "all", "--package", "declared"]
    assert main(run) == 0
    (published,) = Path("published/runs").rglob("*.parquet")
    harm(published)
    capsys.readouterr()
    assert main(run) == 0
    assert "2 rows (2 new, 0 changed" in capsys.readouterr().out
