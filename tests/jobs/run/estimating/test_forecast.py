"""What days of calls to a model will cost, forecast from a sample of answers: by backtests on drawn
vendors, whose truth the forecast never sees.
"""

import os

import numpy as np
import pytest

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.store import LedgerFolder
from jobs.run.estimating.forecast import predict_total, read_latest


def draw_costs(draw, lengths):
    """Tokens of a prompt and of texts of so many bytes, and answers of any length."""
    prompt, per_byte = draw.integers(20, 400), draw.uniform(0.15, 0.4)
    inputs = prompt + lengths * per_byte * draw.lognormal(0.0, 0.1, len(lengths))
    outputs = draw.lognormal(draw.uniform(2.5, 4.0), draw.uniform(0.2, 0.8), len(lengths))
    return np.ceil(inputs) * 0.15e-6 + np.ceil(outputs) * 0.60e-6


def test_a_forecast_interval_contains_the_true_cost_in_93_of_100_backtests():
    draw, held, errors = np.random.default_rng(5), 0, []
    for _ in range(100):
        known, asked = int(draw.integers(200, 2_000)), int(draw.integers(100, 5_000))
        lengths = np.ceil(draw.lognormal(5.0, 0.7, known + asked))
        # the day's texts may be longer than those of the sample
        lengths[known:] *= draw.choice([1, 1, 2])
        costs = draw_costs(draw, lengths)
        found = predict_total(lengths[:known], costs[:known], lengths[known:], np.ones(asked))
        truth = costs[known:].sum()
        held += found.low <= truth <= found.high
        errors.append(abs(found.cost - truth) / truth)
    assert held >= 93
    assert np.median(errors) <= 0.05


def test_keys_of_one_length_cost_the_mean_of_the_sample():
    lengths, costs = np.full(30, 16.0), np.arange(30.0)
    found = predict_total(lengths, costs, np.full(4, 16.0), np.array([1.0, 1.0, 2.0, 6.0]))
    assert found.cost == pytest.approx(10 * 14.5)
    assert found.low < found.cost < found.high


def test_a_forecast_of_no_call_is_zero():
    found = predict_total(np.arange(30.0), np.arange(30.0), np.empty(0), np.empty(0))
    assert (found.cost, found.low, found.high) == (0.0, 0.0, 0.0)


def test_the_parts_that_were_stored_last_are_read_first(tmp_path):
    folder = LedgerFolder(str(tmp_path), "label", "f")
    for run in ("older", "newest", "oldest"):
        folder.write_part(run, "0-0-0", [StoredAnswer("[1]", "ok", b"{}", 1, run)])
    for age, run in enumerate(["newest", "older", "oldest"]):
        os.utime(f"{folder.path}/parts/{run}/0-0-0.parquet", (1000 - age, 1000 - age))
    tables = read_latest(folder, 2)
    assert [table["run_id"][0].as_py() for table in tables] == ["newest", "older"]
