"""A disk that takes no more answers, damages them, or has a file where a folder should be."""

import os
import resource
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tidegate.__main__ import main

DAY = "2013-01-10"
LARGEST = 100_000  # bytes of a file


@contextmanager
def largest_file(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("rows", [1, 40])
def test_a_run_that_cannot_store_answers_pays_no_key_twice(local_days, service, capsys, rows):
    asked = Counter()

    async def answer(request):
        asked[request.path] += 1
        # larger than any file may be, so that no part fits, however few answers it has
        return web.json_response({"temp_c": 1.0, "note": os.urandom(LARGEST).hex()})

    service.answer = answer
    local_days.write_input(DAY, [f"t{number}" for number in range(rows)])
    with largest_file(LARGEST):
        assert local_days.run(DAY) == 1
    assert "answers cannot be stored: " in capsys.readouterr().err
    assert max(asked.values()) == 1
    assert local_days.run(DAY) == 0


def test_a_run_shows_which_file_of_the_ledger_is_damaged_and_calls_its_keys_again(
    local_days, service, capsys
):
    local_days.write_input(DAY, ["a", "b"])
    assert local_days.run(DAY) == 0
    (part,) = Path("data/ledger").rglob("*.parquet")
    part.write_bytes(part.read_bytes()[:-9])
    capsys.readouterr()
    assert local_days.run(DAY) == 0
    shown = capsys.readouterr().out
    assert "2 calls" in shown
    assert "lookup weather: 1 damaged file of its ledger cannot be read" in shown
    assert str(part) in shown


@pytest.mark.parametrize("path", ["data/runs", "data/reports"])
@pytest.mark.parametrize("command", [["status"], ["forget", "weather", "--key", "town=a"]])
def test_a_file_in_the_place_of_a_folder_is_reported_in_one_sentence(
    local_days, capsys, path, command
):
    local_days.write_input(DAY, ["a"])
    assert local_days.run(DAY) == 0
    Path(path).rename("data/kept")
    Path(path).write_text("not a folder")
    capsys.readouterr()
    main([*command, "--package", "declared"])
    assert "Traceback" not in capsys.readouterr().err
