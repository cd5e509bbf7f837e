"""How tasks divide the calls in flight, whatever happens to them."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.run.coordinator.call_shares import CallShares
from jobs.schema.records import ShareGiven


def held(shares):
    return [sum(calls) for calls in zip(*(part.has for part in parts(shares)), strict=True)]


def parts(shares):
    return [*shares._working.values(), *shares._reserved]


@given(total=st.integers(1, 200), data=st.data())
def test_shares_never_exceed_the_limit_and_only_a_tasks_report_lowers_its_share(total, data):
    tasks = data.draw(st.integers(1, min(total, 8)))
    shares, had, now = CallShares((total,), tasks), {}, 0.0
    for at in range(data.draw(st.integers(1, 40))):
        attempt = data.draw(st.sampled_from([*had, None]))
        what = data.draw(st.sampled_from(["report", "report", "end", "lose"]))
        if attempt is None:
            had[f"attempt {at}"] = shares.begin(
                f"attempt {at}", data.draw(st.integers(0, tasks - 1)), at, at
            )[0]
        elif what == "report":
            keeps, wants = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
            has = shares.report(attempt, [keeps], [wants], at)[0]
            assert has >= min(keeps, had[attempt])
            had[attempt] = has
        elif what == "end":
            del had[attempt]
            shares.end(attempt, at)
        else:
            del had[attempt]
            shares.lose(attempt, now + data.draw(st.sampled_from([0.0, 30.0])))
        now += data.draw(st.sampled_from([0.0, 30.0]))
        shares.expire(now)
        assert {name: part.has[0] for name, part in shares._working.items()} == had
        assert sum(held(shares)) + shares._free[0] == total
        assert min(shares._free[0], *(part.has[0] for part in parts(shares)), total) >= 0
    changes = [(given.attempt, given.since) for given in shares.given if any(given.shares)]
    assert len(set(changes)) == len(changes)  # at one moment an attempt has one share
    last = {given.attempt: given.shares[0] for given in shares.given}
    assert {
        name: last[int(name.split()[1])] for name in had if int(name.split()[1]) in last
    }.items() <= had.items()


@given(wants=st.lists(st.integers(0, 30), min_size=1, max_size=8), total=st.integers(8, 60))
def test_after_two_reports_of_each_task_every_wanted_call_is_given(wants, total):
    shares = CallShares((total,), len(wants))
    has = [shares.begin(str(task), task, 0)[0] for task in range(len(wants))]
    for _ in range(2):
        for task, wanted in enumerate(wants):
            (has[task],) = shares.report(str(task), [min(wanted, has[task])], [wanted], 1)
    assert sum(has) == min(total, sum(wants))


def test_the_last_task_gets_all_calls():
    shares = CallShares((10, 3), 3)
    assert [shares.begin(str(task), task, 1) for task in range(3)] == [[4, 1], [3, 1], [3, 1]]
    shares.end("0", 5)
    assert shares.to_ask() == ["1", "2"]
    assert [shares.report(name, [3, 1], [10, 3], 6) for name in "12"] == [[5, 2], [5, 1]]
    shares.end("2", 7)
    assert shares.report("1", [5, 2], [10, 3], 8) == [10, 3]
    assert shares.given == [
        ShareGiven(0, (0, 0), 5), ShareGiven(1, (5, 2), 6), ShareGiven(2, (5, 1), 6),
        ShareGiven(2, (0, 0), 7), ShareGiven(1, (10, 3), 8),
    ]  # fmt: skip


def test_a_task_with_a_finished_lookup_gets_more_calls_for_the_other():
    shares = CallShares((4, 4), 2)
    for task in range(2):
        shares.begin(str(task), task, 1)
    assert shares.report("0", [1, 2], [1, 50], 2) == [1, 2]
    assert shares.report("1", [2, 2], [4, 4], 3) == [3, 2]
    shares.end("1", 4)
    assert shares.report("0", [1, 2], [1, 50], 5) == [1, 4]


def test_the_share_of_a_dead_task_waits_for_its_next_attempt_and_is_released_if_none_comes():
    shares = CallShares((4,), 2)
    shares.begin("first", 0, 1)
    shares.begin("dies", 1, 1)
    shares.lose("dies", until=130.0)
    assert shares.report("first", [2], [4], 2) == [2]
    assert shares.begin("again", 1, 3) == [2]
    shares.lose("again", until=230.0)
    shares.expire(229.0)
    assert shares.to_ask() == []
    shares.expire(230.0)
    assert shares.to_ask() == ["first"]
    assert shares.report("first", [2], [4], 4) == [4]
    assert shares.begin("late", 1, 5) == [0]


def test_shares_of_a_lost_attempt_and_of_the_next_attempt_are_recorded_apart():
    shares = CallShares((4,), 2)
    assert [shares.begin("first", 0, 10, attempt=7), shares.begin("dies", 1, 11, attempt=8)] == [
        [2],
        [2],
    ]
    shares.end("first", 20)
    assert shares.report("dies", [2], [4], 21) == [4]
    shares.lose("dies", until=130.0)
    assert shares.begin("again", 1, 5, attempt=9) == [4]
    shares.end("again", 6)
    assert shares.given == [
        ShareGiven(0, (0,), 20, 7), ShareGiven(1, (4,), 21, 8), ShareGiven(1, (0,), 21, 8),
        ShareGiven(1, (4,), 5, 9), ShareGiven(1, (0,), 6, 9),
    ]  # fmt: skip


def test_an_attempt_gets_a_single_first_share():
    shares = CallShares((4,), 2)
    shares.begin("first", 0, 10, attempt=7)
    shares.begin("dies", 1, 11, attempt=8)
    shares.lose("dies", until=130.0)
    shares.expire(130.0)
    shares.end("first", 20)
    assert shares.begin("again", 1, 30, attempt=9) == [4]
    assert [given for given in shares.given if given.attempt == 9] == [ShareGiven(1, (4,), 30, 9)]


def test_two_attempts_of_a_task_at_once_share_one_share():
    shares = CallShares((4,), 2)
    assert [shares.begin(name, 1, 1) for name in ("one", "other")] == [[2], [0]]
    shares.begin("first", 0, 1)
    shares.end("one", 2)
    assert shares.report("other", [0], [4], 3) == [2]
