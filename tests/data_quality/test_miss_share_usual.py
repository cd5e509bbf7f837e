"""The share of misses is compared with the mean of days that had rows to judge, exactly."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

from data_quality.checks.miss_share_usual import MissShareUsual
from data_quality.history import EarlierDay
from data_quality.rows.written_day import WrittenDay
from jobs.schema.records import DayMetrics, LookupFacts, LookupMetrics
from tests.data_quality.honest_day import declare, honest_day

LOOKUP = LookupFacts("firm", "http", "vendor", (("score", "DOUBLE"),), None, 1, when="wanted")
DECLARED = declare(lookups=(LOOKUP,), miss_change=0.1)


def earlier(outcomes):
    lookup = LookupMetrics("firm", outcomes, 0, 0, 0.0, 0.0, None, None)
    return EarlierDay(DayMetrics(0, 0, 0, (lookup,)))


def model(outcomes, days):
    """None: no earlier day; else whether the change is within 0.1."""
    shares = [Fraction(day["miss"], day["miss"] + day["ok"]) for day in days
              if day["miss"] + day["ok"]]  # fmt: skip
    if outcomes["miss"] + outcomes["ok"] == 0:
        return bool(shares) or None
    if not shares:
        return None
    now = Fraction(outcomes["miss"], outcomes["miss"] + outcomes["ok"])
    return abs(now - sum(shares) / len(shares)) <= Fraction(1, 10)


def test_the_miss_share_is_compared_with_the_exact_shares_of_earlier_rows(tmp_path):
    draw, seen = random.Random(3), Counter()
    facts = honest_day(tmp_path, sizes=()).facts()
    for _ in range(3_000):
        rows = draw.choice((0, 10, 20, 100))
        days = []
        for _ in range(draw.randrange(5)):
            misses = draw.randrange(rows + 1)
            days.append({"ok": rows - misses, "miss": misses, "skipped": draw.choice((0, 50))})
        outcomes = draw.choice([*days, {"ok": 6, "miss": 4}, {"ok": 0, "miss": 0, "skipped": 9}])
        if draw.random() < 0.5 and outcomes["ok"] >= rows // 10:  # exactly the tolerated change
            outcomes = outcomes | {
                "ok": outcomes["ok"] - rows // 10,
                "miss": outcomes["miss"] + rows // 10,
            }
        day = WrittenDay(None, facts, None, None)
        day = replace(day, earlier={str(n): earlier(counts) for n, counts in enumerate(days)})
        found = MissShareUsual(DECLARED, LOOKUP).finding([Counter(outcomes)], day)
        assert found.success is model(outcomes, days), (outcomes, days, found)
        seen[found.success] += 1
    assert min(seen[answer] for answer in (True, False, None)) > 100
