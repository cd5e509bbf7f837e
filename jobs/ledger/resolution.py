"""Resolves the records of a key: the newest of each outcome, and the effective record among these.

Only the newest record of each outcome matters, and its selection is idempotent and independent of
order and grouping. So parts can be read twice, merged by two compactions at once, or merged and
kept.

A time in the future comes from a wrong clock. Such a record counts as older than every other
record, so that later answers and refreshes count. Its age is unknown, so it is never within a
limited time to live.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.answers import OUTCOMES, taken

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
OK, MISS, ERROR, TIMEOUT, ASKED, EXPIRED = range(len(OUTCOMES))
NEVER = -(1 << 62)  # before all times
LONGEST = 1 << 62  # µs, the longest time to live
SKEW = 300_000_000  # µs, tolerated difference of clocks
# µs, of "expired" marks: a table without days needs them until its next run
MARKS_KEPT = 400 * 86_400_000_000
# µs by which future times are moved back: before all times, after NEVER, in order
TO_COME = 1 << 61
END = 1 << 61  # after all times
ANY_AGE = Ttl(ok=None, miss=None, error=None)


def outcome_codes(table: pa.Table) -> Ints:
    """Return each row's outcome as its index in OUTCOMES; -1 for an unknown outcome."""
    codes: Ints = (
        pc.index_in(table["outcome"], pa.array(OUTCOMES)).fill_null(-1).to_numpy().astype(np.int64)
    )
    return codes


def newest_rows(keys: Ints, table: pa.Table, now_us: int) -> Ints:
    """Return the newest row of each key and outcome, ordered by key, then outcome. Equal keys have
    equal numbers. `now_us` is in µs since the epoch.

    Of two rows with the same time, the greater run_id counts.
    """
    codes = outcome_codes(table)
    group = keys * len(OUTCOMES) + codes
    times = believed(answer_times(table), now_us)
    runs = pc.rank(table["run_id"].combine_chunks(), tiebreaker="dense").to_numpy()
    order = np.lexsort((runs, times, group))
    order = order[codes[order] >= 0]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = group[order][1:] != group[order][:-1]
    newest: Ints = order[last]
    return newest


def answer_times(table: pa.Table) -> Ints:
    times: Ints = table["answered_at"].cast(pa.int64()).to_numpy()
    return times


def believed(times: Ints, now_us: int) -> Ints:
    """Return effective times: future times come before all others."""
    put_back: Ints = np.where(
        times > now_us + SKEW, np.minimum(times, TO_COME // 2) - TO_COME, times
    )
    return put_back


@dataclass(frozen=True)
class Decided:
    """The decision for each key, numbered from 0.

    Attributes:
        rows: Its effective row, or -1 to call.
        expired: The key has an answer but is called again, because its time to live ran out.
        refreshed: The key has an answer but is called again, because it was refreshed.
    """

    rows: Ints
    expired: Mask
    refreshed: Mask


def decide(keys: Ints, table: pa.Table, count: int, *, now_us: int, ttl: Ttl) -> Decided:
    """Return each key's effective row; `table` has at most one row per key and outcome."""
    times, rows = _by_outcome(keys, table, count, now_us)
    limits = ttl.max_age_us()
    void = times[EXPIRED]
    younger = np.where(times[OK] >= times[MISS], OK, MISS)
    answered = np.maximum(times[OK], times[MISS])
    limit = np.where(younger == OK, _limit(limits["ok"]), _limit(limits["miss"]))
    counts = answered > void
    holds = counts & (now_us - answered < limit)
    asked_open = times[ASKED] > np.maximum(np.maximum(answered, times[ERROR]), void)
    failed = np.where(times[ERROR] >= times[TIMEOUT], ERROR, TIMEOUT)
    failed_at = np.maximum(times[ERROR], times[TIMEOUT])
    failure_holds = (failed_at > np.maximum(answered, void)) & (
        now_us - failed_at < _limit(limits["error"])
    )
    every = np.arange(count)
    effective = np.select(
        [holds, asked_open, failure_holds],
        [rows[younger, every], rows[ASKED], rows[failed, every]],
        default=-1,
    )
    has_answer = (answered > NEVER) & (effective < 0)
    return Decided(effective, has_answer & counts, has_answer & ~counts)


def effective_records(stored: pa.Table) -> pa.Table:
    """Return the effective record of each key among a run's records, whatever their age.

    The run's clock is right for the run itself, also where it is ahead of others.
    """
    texts = pc.unique(stored["key"])
    keys = pc.index_in(stored["key"], texts).to_numpy().astype(np.int64)
    newest = newest_rows(keys, stored, END)
    rows = taken(stored, newest)
    decided = decide(keys[newest], rows, len(texts), now_us=END, ttl=ANY_AGE)
    return taken(rows, decided.rows[decided.rows >= 0])


def superseded(keys: Ints, table: pa.Table, count: int, now_us: int) -> Mask:
    """Return the rows that cannot affect a key, at any time to live, and old marks of refreshes.

    `table` has at most one row per key and outcome.
    """
    times, _ = _by_outcome(keys, table, count, now_us)
    void = times[EXPIRED]
    answered = np.maximum(np.maximum(times[OK], times[MISS]), void)
    settled = np.maximum(answered, times[ERROR])
    bar = np.full_like(times, NEVER)
    bar[OK] = bar[MISS] = bar[ERROR] = bar[TIMEOUT] = answered
    bar[ASKED] = settled
    at = believed(answer_times(table), now_us)
    codes = outcome_codes(table)
    below = at < bar[codes, keys]
    is_mark = codes == EXPIRED
    useless: Mask = (
        below
        | (~is_mark & (at <= void[keys]))
        | (is_mark & (now_us - answer_times(table) > MARKS_KEPT))
    )
    return useless


def _by_outcome(keys: Ints, table: pa.Table, count: int, now_us: int) -> tuple[Ints, Ints]:
    """Return effective time and row by outcome (first axis) and key; NEVER and -1 if none."""
    times = np.full((len(OUTCOMES), count), NEVER, dtype=np.int64)
    rows = np.full((len(OUTCOMES), count), -1, dtype=np.int64)
    codes = outcome_codes(table)
    times[codes, keys] = believed(answer_times(table), now_us)
    rows[codes, keys] = np.arange(table.num_rows)
    return times, rows


def _limit(age_us: int | None) -> Any:
    """Return the age limit in 64 bits; 0 excludes every record, even after a clock was set back."""
    if age_us == 0:
        return -LONGEST
    return LONGEST if age_us is None else min(age_us, LONGEST)
