"""What a task has billed is counted on disk before it is sent: nothing is lost with a process that
is killed.
"""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.billing_meter import Meters, metered

UNITS = {"geo": ["request"], "model": ["token", "request"], "ma \n il": ["item"]}
BILLS = st.tuples(
    st.integers(0, 2), st.sampled_from([*UNITS, "free"]),
    st.sampled_from(["request", "item", "token"]), st.integers(20_000, 20_002),
    st.integers(0, 10**12),
)  # fmt: skip


@given(bills=st.lists(BILLS, max_size=40))
def test_the_meters_of_all_attempts_add_up_to_the_units_billed(tmp_path_factory, bills):
    folder, right = tmp_path_factory.mktemp("bills"), {}
    meters = [Meters(str(folder), UNITS).open() for _ in range(3)]
    for attempt, lookup, unit, day, many in bills:
        meters[attempt].add(lookup, unit, day, many)
        if unit in UNITS.get(lookup, ()) and many:
            right.setdefault(lookup, Counter())[unit, day] += many
        assert metered(folder) == right
    for meter in meters:
        meter.close()


def test_a_torn_last_line_and_a_vanished_meter_count_nothing(tmp_path):
    meter = Meters(str(tmp_path), UNITS).open()
    meter.add("geo", "request", 20_000, 3)
    meter.close()
    (written,) = tmp_path.iterdir()
    (tmp_path / "torn.meter").write_text(written.read_text() + written.read_text()[:-1])
    (tmp_path / "gone.meter").symlink_to("nowhere")
    assert metered(tmp_path) == {"geo": {("request", 20_000): 6}}


@pytest.mark.process
def test_a_killed_process_has_counted_all_that_it_sent(tmp_path):
    program = (
        "from jobs.clients.billing_meter import Meters\n"
        f"meter = Meters({str(tmp_path)!r}, {{'geo': ['request']}}).open()\n"
        "while True:\n    meter.add('geo', 'request', 20_000, 1)\n    print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        sent = sum(1 for _, _ in zip(range(500), process.stdout, strict=False))
        process.kill()
        sent += sum(1 for _ in process.stdout)
    assert metered(tmp_path)["geo"]["request", 20_000] - sent in (0, 1)
