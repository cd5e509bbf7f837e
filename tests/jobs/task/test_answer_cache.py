"""The kept answers of a task take a bounded memory, however large answers are."""

import random
import tracemalloc
from datetime import timedelta

import pytest

from jobs.errors import DeclarationError
from jobs.task.lookup.call_table import CallTable
from jobs.task.lookup.shared_calls import AnswerCache
from tests.jobs.task.test_runner import Function, lookup
from tidegate import Cache


def put(kept, answers):
    for number, answer in enumerate(answers):
        kept.put((number,), (answer, number), answer)


def test_1500_answers_of_900_kb_stay_within_the_declared_memory():
    tracemalloc.start()
    kept = AnswerCache(Cache(max_bytes=64 << 20), lambda: 0)
    put(kept, ((float(number), "x" * 900_000) for number in range(1_500)))
    now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 65 << 20
    assert most < 67 << 20
    assert len(kept) == 74
    assert (1_499,) in kept


@pytest.mark.parametrize("make", [
    lambda size: ("é" * (size // 2),), lambda size: ([str(n) * 20 for n in range(size // 100)],),
    lambda size: ({"name": "x" * size, "n": 1},), lambda size: (b"x" * size, None, 1.5),
    lambda size: ([float(n) for n in range(size // 32)],),
])  # fmt: skip
@pytest.mark.slow
def test_answers_of_any_kind_and_mixed_sizes_are_bounded(make):
    draw = random.Random(1)
    tracemalloc.start()
    kept = AnswerCache(Cache(max_bytes=8 << 20), lambda: 0)
    put(kept, (make(draw.choice([100, 1_000, 200_000])) for _ in range(500)))
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 10 << 20
    assert len(kept) < 400


@pytest.mark.parametrize("period", [2, 4, 16])
def test_large_answers_at_regular_intervals_stay_within_the_memory(period):
    kept = AnswerCache(Cache(max_bytes=2 << 20), lambda: 0)
    put(kept, (("x" * 100_000 if n % period == 1 else "",) for n in range(1_000)))
    assert sum(len(answer) for (answer,), _ in kept.values()) < 2 << 20


def test_long_keys_stay_within_the_memory():
    kept = AnswerCache(Cache(max_bytes=2 << 20), lambda: 0)
    for number in range(2_000):
        kept.put((f"{number:010000}",), ((1.5,), number), (1.5,))
    assert len(kept) == (2 << 20) // 10_049


def test_a_large_answer_is_kept_and_an_oversized_answer_evicts_no_other():
    kept = AnswerCache(Cache(max_bytes=2 << 20), lambda: 0)
    put(kept, [("x" * 1_000_000,), ("x" * 500_000,)])
    assert list(kept) == [(0,), (1,)]
    put(kept, [("x" * 3_000_000,)])  # in place of the first
    assert list(kept) == [(1,)]


def test_small_answers_are_limited_by_their_number():
    kept = AnswerCache(Cache(max_entries=10_000), lambda: 0)
    put(kept, ((1.5, "street", None, True) for _ in range(20_000)))
    assert len(kept) == 10_000


def test_an_answer_put_again_or_dropped_does_not_count_twice():
    kept = AnswerCache(Cache(max_entries=40, max_bytes=2 << 20), lambda: 0)
    for _ in range(50):
        put(kept, (("x" * 20_000,) for _ in range(30)))
    assert len(kept) >= 30


@pytest.mark.parametrize("seed", range(20))
def test_the_weight_of_a_cache_equals_the_weight_of_its_answers(seed):
    """Doubted answers are dropped, others are evicted, replaced, or too old."""
    draw, now = random.Random(seed), [0]
    rule = Cache(max_entries=draw.choice((5, 40)), max_bytes=2 << 20, ttl=timedelta(seconds=50))
    kept = AnswerCache(rule, lambda: now[0])
    table = CallTable(lookup(Function()), None, rule, lambda: now[0])
    table.kept = kept
    for _ in range(3000):
        key, now[0] = draw.randrange(60), now[0] + 1_000_000
        match draw.randrange(4):
            case 0:
                table.drop([(key,)])
            case 1 if (key,) in kept:
                kept.may_be_used((key,), answered_at=kept[key,][1])
            case _:
                kept.put((key,), (("x" * 20_000,), now[0]), ("x" * 20_000,))
        assert kept._bytes == sum(kept._sizes.values())
        assert set(kept._sizes) <= set(kept)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_wrong_cache_size_is_refused(wrong):
    with pytest.raises(DeclarationError, match="cache: max_bytes is "):
        Cache(max_bytes=wrong)
