"""How tasks divide the calls in flight, whatever befalls them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobs.run.quota import Quota, shares


@given(total=st.integers(1, 10_000), parts=st.integers(1, 500))
def test_shares_never_exceed_the_total_and_are_as_even_as_whole_calls_can_be(total, parts):
    divided = shares(total, parts)
    assert len(divided) == parts
    assert sum(divided) == total
    assert max(divided) - min(divided) <= 1


@given(total=st.integers(1, 200), data=st.data())
def test_shares_of_all_together_are_never_too_many_and_only_its_own_word_makes_that_of_one_at_work_smaller(total, data):
    tasks = data.draw(st.integers(1, min(total, 8)))
    division, works = Quota((total,), tasks), Counter()
    had = {}
    for _ in range(data.draw(st.integers(1, 40))):
        task = data.draw(st.integers(0, tasks - 1))
        if works[task] == 1 and division.share_of(task) and data.draw(st.booleans()):
            needs = data.draw(st.integers(0, total))
            before = division.share_of(task)[0]
            assert division.reduce(task, [needs])
            had[task] = (max(1, min(needs, before)),)
            assert division.share_of(task) == had[task]
        elif works[task] and data.draw(st.booleans()):
            ended = division.share_of(task) is not None and data.draw(st.booleans())
            works[task] -= 1
            division.leave(task, ended=ended)
            if not works[task]:
                had.pop(task, None)
        else:
            works[task] += 1
            division.begin(task)
        now = {one: division.share_of(one) for one in range(tasks)}
        assert sum(share[0] for share in now.values() if share) <= total
        at_work = [one for one in works if works[one]]
        assert not at_work or any(now[one] for one in at_work), "all wait"
        for one in at_work:
            assert now[one] is None or now[one] >= had.get(one, (1,))
            if now[one]:
                had[one] = now[one]


def test_the_last_task_at_work_has_all():
    division = Quota((10, 3), 3)
    for task in range(3):
        division.begin(task)
    assert division.leave(0, ended=True)
    assert (division.share_of(1), division.share_of(2)) == ((5, 2), (5, 1))
    assert division.leave(2, ended=True)
    assert division.share_of(1) == (10, 3)


def test_of_a_task_that_runs_twice_nothing_is_given_before_both_have_left():
    division = Quota((4,), 2)
    for task in (0, 1, 1):
        division.begin(task)
    assert not division.leave(1, ended=True)
    assert division.share_of(0) == (2,)
    assert division.leave(1, ended=False)
    assert division.share_of(0) == (4,)


def test_what_a_task_with_few_rows_left_needs_no_more_the_others_have():
    division = Quota((10, 6), 3)
    for task in range(3):
        division.begin(task)
    assert division.reduce(2, (1, 0))
    assert [division.share_of(task) for task in range(3)] == [(5, 3), (4, 2), (1, 1)]
    assert division.reduce(0, (2, 9))
    assert [division.share_of(task) for task in range(3)] == [(2, 3), (7, 2), (1, 1)]


def test_a_task_of_which_one_lookup_is_through_is_given_more_for_the_other():
    division = Quota((4, 4), 2)
    for task in range(2):
        division.begin(task)
    assert division.reduce(0, (1, 50))
    assert [division.share_of(task) for task in range(2)] == [(1, 2), (3, 2)]
    assert division.leave(1, ended=True)
    assert division.share_of(0) == (1, 4)


def test_a_task_that_died_after_it_needed_few_begins_with_these_and_is_the_first_to_have_more():
    division = Quota((9,), 3)
    for task in range(3):
        division.begin(task)
    division.reduce(0, (1,))
    division.leave(0, ended=False)
    division.begin(0)
    assert [division.share_of(task) for task in range(3)] == [(1,), (4,), (4,)]
    division.leave(2, ended=True)
    assert [division.share_of(task) for task in range(2)] == [(5,), (4,)]


def test_of_two_attempts_at_once_neither_can_say_what_the_task_needs():
    division = Quota((4,), 2)
    for task in (0, 1, 1):
        division.begin(task)
    assert not division.reduce(1, (1,))
    assert division.share_of(0) == (2,)
