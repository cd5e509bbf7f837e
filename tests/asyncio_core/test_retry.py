import pickle
import random

import pytest

from asyncio_core import NO_RETRY, exponential_backoff, fixed_delay


def always(_):
    return True


BACKOFF = {
    "max_retries": 3,
    "initial_delay": 1.0,
    "max_delay": 5.0,
    "multiplier": 2.0,
    "on_exception": always,
}


def test_max_retries_counts_the_calls_after_the_first():
    strategy = fixed_delay(max_retries=2, delay=0.5, on_result=always)
    assert [strategy.can_retry(attempts) for attempts in (1, 2, 3)] == [True, True, False]
    assert not NO_RETRY.can_retry(1)


def test_a_fixed_delay_is_the_same_for_every_attempt():
    strategy = fixed_delay(max_retries=2, delay=0.5, on_result=always)
    assert [strategy.delay(attempts) for attempts in (1, 2)] == [0.5, 0.5]


def test_exponential_backoff_grows_from_the_attempt_number_alone_up_to_its_limit():
    strategy = exponential_backoff(**BACKOFF)
    assert [strategy.delay(attempts) for attempts in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert strategy.delay(1) == 1.0, "asking changes nothing"
    assert strategy.delay(100_000) == 5.0, "a large power does not overflow"


def test_the_first_delay_is_not_capped():
    assert exponential_backoff(**{**BACKOFF, "initial_delay": 9.0}).delay(1) == 9.0


def test_jitter_lengthens_by_up_to_its_share_and_is_drawn_from_the_given_source():
    strategy = exponential_backoff(**BACKOFF, jitter=0.5, random=random.Random(7))
    same = exponential_backoff(**BACKOFF, jitter=0.5, random=random.Random(7))
    delays = [strategy.delay(2) for _ in range(200)]
    assert delays == [same.delay(2) for _ in range(200)]
    assert min(delays) >= 2.0
    assert max(delays) <= 3.0
    assert max(delays) - min(delays) > 0.8


def test_a_strategy_without_predicate_is_refused():
    with pytest.raises(ValueError, match="on_result or on_exception"):
        fixed_delay(max_retries=1, delay=1.0)
    with pytest.raises(ValueError, match="on_result or on_exception"):
        exponential_backoff(max_retries=1, initial_delay=1, max_delay=1, multiplier=1)


@pytest.mark.parametrize(
    "wrong", [{"max_retries": 0}, {"max_retries": 1.5}, {"delay": 0}, {"delay": float("nan")}]
)
def test_wrong_numbers_of_a_fixed_delay_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        fixed_delay(**{"max_retries": 1, "delay": 1.0, "on_result": always, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": 0},
        {"initial_delay": 0},
        {"max_delay": -1},
        {"multiplier": 0},
        {"multiplier": float("inf")},
        {"jitter": -0.1},
    ],
)
def test_wrong_numbers_of_a_backoff_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        exponential_backoff(**{**BACKOFF, **wrong})


@pytest.mark.parametrize(
    "strategy",
    [
        NO_RETRY,
        fixed_delay(max_retries=2, delay=3.0, on_exception=bool),
        exponential_backoff(
            max_retries=2, initial_delay=1.0, max_delay=9.0, multiplier=2.0, on_exception=bool
        ),
    ],
)
def test_a_strategy_can_be_sent_to_another_process(strategy):
    assert pickle.loads(pickle.dumps(strategy)) == strategy
