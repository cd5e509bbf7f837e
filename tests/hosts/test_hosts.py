"""Days on several hosts, whose power, network, store and clocks fail: judged by the published table
and the vendor.
"""

import random
import time

import pytest

from tests.hosts.judge import check_rows, repeats_allowed, see
from tests.hosts.lab import LIMIT

pytestmark = [pytest.mark.hosts, pytest.mark.proof]

REFILLED_WITHIN = 35.0  # s from a fault until all slots are in use again
CALLS_END = 21.0  # s after its driver fell silent, a task starts no call
CUT_OFF = 200.0  # s
ENDS_WITHIN = 900.0  # s
# s after which Spark has noticed that a host is gone, and retries its tasks
LOST_WITHIN = 100.0, 130.0
NEXT_DAY = "2026-11-20"


def end_well(lab, run, name="run"):
    assert run.wait(ENDS_WITHIN) == 0, lab.log(name)[-4000:]


def judge(lab, rows, *faults, latency, seed=None):
    """What must hold of a day after faults."""
    check_rows(lab, rows)
    seen = see(lab, *faults, latency=latency)
    print(f"\n{rows} rows, {seen}" + ("" if seed is None else f", seed {seed}"))
    assert seen.most <= LIMIT
    assert seen.repeated <= repeats_allowed(latency) * max(1, len(faults))
    assert max(seen.repeated_by, default=0) <= repeats_allowed(latency)
    assert max((idle for idle in seen.idle if idle is not None), default=0) <= REFILLED_WITHIN


@pytest.mark.parametrize("rows", [600, 6000])
def test_a_day_is_published_without_a_repeated_call(make_lab, rows):
    lab = make_lab(latency=0.05)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    end_well(lab, lab.start_run())
    check_rows(lab, rows)
    seen = see(lab)
    assert (seen.calls, seen.repeated) == (rows, 0)
    assert seen.most <= LIMIT


@pytest.mark.parametrize("seed", range(6))
def test_power_cuts_of_workers_repeat_only_calls_in_flight(make_lab, seed):
    latency, cuts = 0.3, 5
    rows = round(LIMIT / latency * (LOST_WITHIN[1] + 10) * cuts)
    draws, faults = random.Random(seed), []
    lab = make_lab(latency=latency)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    run = lab.start_run("--conf", "spark.task.maxFailures=9")
    lab.wait_for_calls(draws.randrange(100, 1000), run)
    for _ in range(cuts):
        name = draws.choice(["w1", "w2"])
        faults.append(time.time())
        lab[name].power_off()
        time.sleep(draws.uniform(1, 20))
        lab.network.boot_again(name)
        lab.start_worker(name)
        # Spark retries its tasks
        time.sleep(max(0.0, faults[-1] + draws.uniform(*LOST_WITHIN) - time.time()))
        assert run.poll() is None, lab.log()[-4000:]
    end_well(lab, run)
    judge(lab, rows, *faults, latency=latency, seed=seed)


def test_a_worker_cut_off_from_the_driver_calls_nothing_more(make_lab):
    latency, few, rows = 0.5, 1200, 6000
    lab = make_lab(latency=latency)
    lab.make_orders([few, rows - few], rows)
    run = lab.start_run()
    lab.wait_for_calls(600, run)
    worker = lab.caller_of({f"c{n * 7919 % rows}" for n in range(few, rows)})
    fault_at = time.time()
    with lab.network.cut("driver", worker):
        time.sleep(CUT_OFF)
    end_well(lab, run)
    judge(lab, rows, fault_at, latency=latency)
    called = [
        call["began"] - fault_at for call in lab.calls() if call["from"] == lab[worker].address
    ]
    assert [began for began in called if CALLS_END < began < CUT_OFF] == []


def test_a_store_that_is_cut_off_for_a_minute_loses_no_answer(make_lab):
    latency, rows = 0.3, 3000
    lab = make_lab(latency=latency)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    run = lab.start_run()
    lab.wait_for_calls(600, run)
    with lab.network.cut("store", "driver", "w1", "w2"):
        time.sleep(60)
    end_well(lab, run)
    judge(lab, rows, latency=latency)


def test_a_slow_store_repeats_no_call(make_lab):
    latency, rows = 0.3, 1500
    lab = make_lab(latency=latency, store_latency=0.2)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    end_well(lab, lab.start_run())
    judge(lab, rows, latency=latency)
    assert len(lab.calls()) == rows


def test_a_driver_that_is_cut_off_for_a_while_publishes_the_day(make_lab):
    latency, rows = 0.3, 6000
    lab = make_lab(latency=latency)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    run = lab.start_run()
    lab.wait_for_calls(600, run)
    fault_at = time.time()
    with lab.network.cut("driver", "w1", "w2", "store", "vendor"):
        time.sleep(60)
    if run.wait(ENDS_WITHIN) != 0:  # the person at 7 in the morning runs it again
        print(lab.log()[-1000:])
        end_well(lab, lab.start_run(name="again"), "again")
    check_rows(lab, rows)
    seen = see(lab, fault_at, latency=latency)
    print(f"\n{rows} rows, {seen}")
    assert seen.most <= LIMIT
    assert seen.repeated <= repeats_allowed(latency)
    late = [call["began"] - fault_at for call in lab.calls()]
    assert [began for began in late if CALLS_END < began < 60] == []


@pytest.mark.parametrize("host", ["driver", "w1"])
def test_a_clock_that_is_four_minutes_off_changes_nothing(make_lab, host):
    rows = 600
    lab = make_lab(latency=0.1, **({} if host == "driver" else {host: 240.0}))
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    end_well(lab, lab.start_run(clock_ahead=240.0 if host == "driver" else 0.0))
    judge(lab, rows, latency=0.1)


def test_two_runs_at_once_hold_the_limit_together(make_lab):
    latency, rows = 0.3, 1500
    lab = make_lab(latency=latency)
    for day in (None, NEXT_DAY):
        lab.make_orders(
            [rows // 2, rows - rows // 2], rows, **({} if day is None else {"day": day})
        )
    first = lab.start_run("--conf", "spark.cores.max=1")
    second = lab.start_run("--conf", "spark.cores.max=1", day=NEXT_DAY, name="second")
    end_well(lab, first)
    end_well(lab, second, "second")
    check_rows(lab, rows, NEXT_DAY)
    judge(lab, rows, latency=latency)
