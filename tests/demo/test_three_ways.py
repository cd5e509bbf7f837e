"""The comparison of the demo against real databases: the same names, and the calls in flight that
it claims.
"""

import pytest

from demo import three_ways


@pytest.fixture
def database(request, tmp_path):
    if request.param == "SQLite":
        found = three_ways.sqlite_file(tmp_path / "names.db")
    else:
        server = request.getfixturevalue("postgres")
        found = three_ways.postgres(server.url(server.new_database(), driver="postgresql"))
    found.fill([f"name {number}" for number in range(24)])
    return found


@pytest.mark.parametrize(
    "database", ["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.process)], indirect=True
)
def test_three_ways_give_the_same_names_with_one_or_many_calls_in_flight(database):
    one, threads, asynchronous = three_ways.compare(database, records=24, at_once=6)
    assert (
        one.names
        == threads.names
        == asynchronous.names
        == [f"name {number}" for number in range(24)]
    )
    assert one.most_in_flight == 1
    assert (threads.most_in_flight, asynchronous.most_in_flight) == (6, 6)
    assert max(threads.seconds, asynchronous.seconds) < one.seconds


def test_the_picture_has_the_calls_in_flight_over_the_time_of_the_slowest():
    slow = three_ways.Way("one by one", [], [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)], 4.0)
    fast = three_ways.Way("4 threads", [], [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 0.5)], 1.0)
    lines = list(three_ways.pictures([slow, fast], columns=8))
    assert [line.split("|")[1] for line in lines] == ["▂▂▂▂▂▂▂▂", "█▆      "]
