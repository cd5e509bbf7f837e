"""Two processes that publish one day at the same moment: one of them does, each time. RACES=1000
for more races.
"""

import multiprocessing
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.errors import DayTaken, PublishConflict
from jobs.tables.delivery import deliver
from jobs.tables.delta.delta_log import table_at
from jobs.tables.leases.day_leases import leased
from jobs.tables.publishing import first_day, publish, replace_day
from tests.jobs.tables import test_publishing as days
from tests.support.places import everywhere, place_of

DAY = days.FIRST
ROOT = Path(__file__).parents[3]
RACES = int(os.environ.get("RACES", "100"))
LONGEST = 60.0  # s of one race

pytestmark = [pytest.mark.proof, pytest.mark.process]


def contend(folder, publishes, wire):
    """In a process of its own: publish as often as the test says, each time together with the
    other.
    """
    os.chdir(folder)
    while (message := wire.recv()) is not None:
        days.TABLE, run_id = message

        def together():
            wire.send("here")
            wire.recv()

        try:
            publishes(days.run(run_id, DAY, [1, 2]), together)
            wire.send("published")
        except (DayTaken, PublishConflict) as refused:
            wire.send(type(refused).__name__)


def a_whole_publication(record, together):
    together()
    try:
        with leased(days.TABLE, DAY, record.facts.run_id, wait=0) as lease:
            publish(record, lease)
            together()  # the other may not come late and publish after it
    except DayTaken:
        together()
        raise


def a_commit_alone(record, together):
    """Without a lease, and on top of the version that the other has loaded, too."""
    there = table_at(days.TABLE)
    deliver(record.facts)
    together()
    try:
        first_day(record) if there is None else replace_day(there, record)
    finally:
        together()


@pytest.fixture
def place(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return place_of(request, str(tmp_path))


@pytest.fixture
def both(place, tmp_path):
    """Lets two processes publish these runs at once; what became of each."""
    processes, wires = multiprocessing.get_context("spawn"), []

    def received(wire):
        assert wire.poll(LONGEST)
        return wire.recv()

    def race(publishes, table, runs):
        for _ in runs if not wires else ():
            ours, theirs = processes.Pipe()
            processes.Process(
                target=contend, args=(str(tmp_path), publishes, theirs), daemon=True
            ).start()
            wires.append(ours)
        for wire, run in zip(wires, runs, strict=True):
            wire.send((table, run))
        for _ in ("to begin", "to end"):
            assert [received(wire) for wire in wires] == ["here", "here"]
            for wire in wires:
                wire.send("go")
        return dict(zip(runs, map(received, wires), strict=True))

    yield race
    for wire in wires:
        wire.send(None)


@everywhere("place")
@pytest.mark.parametrize("publishes", [a_whole_publication, a_commit_alone])
@pytest.mark.parametrize("is_first", [False, True])
def test_of_two_publishers_of_a_day_at_once_exactly_one_publishes(both, place, publishes, is_first):
    for number in range(RACES):
        table = f"{place}/{number if is_first else 'one'}/flights"
        found = both(publishes, table, [f"a{number}", f"b{number}"])
        (winner,) = (run for run, outcome in found.items() if outcome == "published")
        seen = DeltaTable(table)
        assert {uri.split("/runs/")[1].split("/")[0] for uri in seen.file_uris()} == {winner}
        assert seen.to_pyarrow_table()["flight"].to_pylist() == [1, 2]
        assert seen.version() == (0 if is_first else number)
