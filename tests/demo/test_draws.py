"""Latencies and faults are arithmetic: nothing but the seed, the key and the attempt
decides them.
"""

import math
from collections import Counter

import pytest

from demo.draws import FAULTS, LOG_LATENCY, Faults, latency, lognormal

KEYS = [f"EWR/{n}" for n in range(50_000)]


def test_the_latencies_have_a_mean_of_50_ms_and_a_99th_percentile_of_200_ms():
    assert math.exp(LOG_LATENCY.mean + LOG_LATENCY.variance / 2) == pytest.approx(0.050)
    assert math.exp(LOG_LATENCY.inv_cdf(0.99)) == pytest.approx(0.200)


def test_the_narrower_of_the_two_fitting_lognormals_is_used():
    assert LOG_LATENCY.stdev == pytest.approx(0.70175, abs=1e-5)
    assert lognormal(1.0, 1.0).stdev < lognormal(1.0, 2.0).stdev < lognormal(1.0, 4.0).stdev


def test_latencies_over_many_keys_follow_the_declared_distribution():
    drawn = sorted(latency(0, key) for key in KEYS)
    assert sum(drawn) / len(drawn) == pytest.approx(0.050, rel=0.03)
    assert drawn[int(0.99 * len(drawn))] == pytest.approx(0.200, rel=0.05)


def test_a_key_has_the_same_latency_for_each_use_of_a_seed():
    assert latency(7, "EWR/a") == latency(7, "EWR/a")
    assert len({latency(seed, key) for seed in (7, 8) for key in ("EWR/a", "EWR/b")}) == 4


def test_faults_have_their_declared_shares_which_are_one_percent_together():
    faults = Faults()
    drawn = Counter(faults.draw(0, key, attempt) for key in KEYS for attempt in (1, 2))
    assert sum(drawn[fault] for fault in FAULTS) == pytest.approx(1_000, rel=0.1)
    for fault in FAULTS:
        assert drawn[fault] == pytest.approx(100_000 * getattr(faults, fault), rel=0.25)


def test_an_attempt_always_has_the_same_fault_and_the_next_attempt_a_new_draw():
    faults = Faults(throttle=0.25, error=0.25, drop=0, hang=0)
    first = [faults.draw(0, key, 1) for key in KEYS]
    assert first == [faults.draw(0, key, 1) for key in KEYS]
    after_a_fault = [
        faults.draw(0, key, 2) for key, fault in zip(KEYS, first, strict=True) if fault
    ]
    assert after_a_fault.count(None) / len(after_a_fault) == pytest.approx(0.5, rel=0.05)


def test_faults_are_read_as_shares_and_the_word_none_means_no_fault():
    assert Faults.parse("none") == Faults(throttle=0, error=0, drop=0, hang=0)
    assert Faults.parse("throttle=0.5,hang=0.1") == Faults(throttle=0.5, error=0, drop=0, hang=0.1)


@pytest.mark.parametrize(
    "text", ["", "slow=0.1", "hang", "hang=", "hang=-1", "hang=nan", "hang=0.6,drop=0.6"]
)
def test_a_wrong_share_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a fault and its share|at most 1"):
        Faults.parse(text)
