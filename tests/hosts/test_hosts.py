"""Days on several hosts, whose power, network, store and clocks fail: judged by the published table and the vendor."""

import pytest

from tests.hosts.judge import check_rows, repeats_allowed, see
from tests.hosts.lab import LIMIT

pytestmark = [pytest.mark.hosts, pytest.mark.proof]

REFILLED_WITHIN = 35.0  # s from a fault until all slots are in use again
ENDS_WITHIN = 900.0  # s


def end_well(lab, run, name="run"):
    assert run.wait(ENDS_WITHIN) == 0, lab.log(name)[-4000:]


def judge(lab, rows, *, latency, fault_at=None, seed=None):
    """What must hold of a day after a fault."""
    check_rows(lab, rows)
    seen = see(lab, fault_at=fault_at, latency=latency)
    print(f"\n{rows} rows, {seen}" + ("" if seed is None else f", seed {seed}"))
    assert seen.most <= LIMIT
    assert seen.repeated <= repeats_allowed(latency)
    assert fault_at is None or (seen.idle is not None and seen.idle <= REFILLED_WITHIN)


@pytest.mark.parametrize("rows", [600, 6000])
def test_a_day_is_published_without_a_repeated_call(make_lab, rows):
    lab = make_lab(latency=0.05)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    end_well(lab, lab.start_run())
    check_rows(lab, rows)
    seen = see(lab)
    assert (seen.calls, seen.repeated) == (rows, 0)
    assert seen.most <= LIMIT


@pytest.mark.parametrize("host", ["driver", "w1"])
def test_a_clock_that_is_four_minutes_off_changes_nothing(make_lab, host):
    rows = 600
    lab = make_lab(latency=0.1, **({} if host == "driver" else {host: 240.0}))
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    end_well(lab, lab.start_run(clock_ahead=240.0 if host == "driver" else 0.0))
    judge(lab, rows, latency=0.1)
