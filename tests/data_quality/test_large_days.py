"""Days that are judged in tasks, with what is gathered of many rows in files, have the verdicts of
days that are judged in memory.
"""

import pickle
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from honest_day import honest_day
from planted_faults import FAULTS, PLACES
from pyspark import cloudpickle

from data_quality.catalogue import checks
from data_quality.judging import Judging
from data_quality.rows import answer_groups
from data_quality.rows.answer_groups import StoredGroups, divide_places, merged
from data_quality.rows.written_day import WrittenDay


def evaluate(text, rows):
    """The key expressions of these days, without Spark."""
    if text == "lower(carrier)":
        return pc.utf8_lower(rows["carrier"]).combine_chunks()
    every, name = re.fullmatch(r"if\(distance % (\d+) = 0, null, (\w+)\)", text).groups()
    distance = rows["distance"].combine_chunks()
    is_left_out = pc.fill_null(
        pc.equal(
            pc.subtract(distance, pc.multiply(pc.divide(distance, int(every)), int(every))), 0
        ),
        False,
    )
    return pc.if_else(is_left_out, None, rows[name].combine_chunks())


class Tasks:
    """Sends each task and its result as Spark does, and runs it here."""

    def __init__(self):
        self.ran = 0

    def run(self, task, parts):
        self.ran += len(parts)
        sent = [cloudpickle.dumps((task, part)) for part in parts]
        return [
            pickle.loads(pickle.dumps(work(part, None))) for work, part in map(pickle.loads, sent)
        ]


def judged(day, facts, figures, *, ledger, **more):
    stored = day.ledger() if ledger else None
    written = WrittenDay.of_run(
        None, facts, metrics=figures, stored=stored, evaluate=evaluate, **more
    )
    judging = Judging([spec.check for spec in checks(facts.declared)], written)
    return judging.findings(), judging.pictures


QUICK = ("a row doubled", "a stored answer a year too old", "two rows swapped")
CASES = [
    pytest.param(
        fault, fault.modes[number % len(fault.modes)], PLACES[number % 3], id=fault.name,
        marks=() if fault.name in QUICK else pytest.mark.proof,
    )
    for number, fault in enumerate(FAULTS)
]  # fmt: skip


@pytest.mark.parametrize(("fault", "mode", "place"), CASES)
def test_tasks_find_a_planted_fault_as_the_driver_does(tmp_path, monkeypatch, fault, mode, place):
    day = honest_day(tmp_path / "day", mode, files_of_a_task=2)
    planted = fault.plant(day, place)
    facts, figures = day.write()
    in_memory, drawn = judged(day, facts, figures, ledger=fault.ledger)
    monkeypatch.setattr(answer_groups, "PLACES_AT_ONCE", 7)
    tasks = Tasks()
    scratch = str(tmp_path / "scratch")
    in_tasks, in_tasks_drawn = judged(
        day, facts, figures, ledger=fault.ledger, tasks=tasks, scratch=scratch
    )
    assert in_tasks == in_memory
    assert drawn == in_tasks_drawn
    assert {name for name, finding in in_tasks.items() if finding.success is False} == planted.red
    assert tasks.ran > len(facts.files)


def test_hash_ranges_have_about_the_wanted_number_of_places(monkeypatch):
    """Of 200,000 places in ten parts that share most of them, by the sketches of the parts."""
    monkeypatch.setattr(answer_groups, "PLACES_AT_ONCE", 10_000)
    rng = np.random.default_rng(1)
    places = rng.integers(0, 1 << 64, 200_000, np.uint64)
    parts = []
    for _ in range(10):
        some = np.sort(rng.choice(places, 150_000, replace=False))
        parts.append(StoredGroups.of(pa.table({"place": some}), None))
    ranges = divide_places(parts)
    assert 18 <= len(ranges) <= 22
    counts = [
        np.sum((places >= np.uint64(first)) & (places <= np.uint64(end - 1)))
        for first, end in ranges
    ]
    assert (sum(counts), max(counts) < 12_000) == (200_000, True)
    assert len(divide_places([replace(part, sketch=part.sketch[:3]) for part in parts[:1]])) == 1


def test_parts_with_the_same_keys_are_merged_in_the_memory_of_a_few_parts(monkeypatch):
    count = 5_000
    monkeypatch.setattr(answer_groups, "PLACES_AT_ONCE", count)
    places = np.sort(np.random.default_rng(1).integers(0, 1 << 64, count, np.uint64))
    numbers = {name: pa.array(np.full(count, 1)) for name in answer_groups.NUMBERS}
    numbers |= {"place": pa.array(places), "key": pa.array(places)}
    highest, before = 0, pa.total_allocated_bytes()

    def parts():
        nonlocal highest
        for number in range(100):
            first = pc.add(pa.array(np.full(count, 0)), number)
            yield pa.table(
                {name: pa.concat_arrays([part, part[:0]]) for name, part in numbers.items()}
                | {"first": first}
            )
            highest = max(highest, pa.total_allocated_bytes() - before)

    together = merged(parts())
    assert together.num_rows == count
    assert set(together["rows"].to_pylist()) == {100}
    assert set(together["first"].to_pylist()) == {0}
    assert highest < 6 * together.nbytes


def test_a_part_without_answers_has_no_groups_in_its_file(tmp_path):
    nothing = StoredGroups.of(pa.table({"place": np.zeros(0, np.uint64)}), str(tmp_path))
    assert nothing.file
    assert [part.num_rows for part in nothing.read((0, 1 << 64))] == []
