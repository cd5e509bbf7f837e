"""Parts, selection, compaction and forgetting, in any order, against the plainest model: a list."""

from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.answers import OUTCOMES, StoredAnswer, as_answers
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from tests.support.examples import examples
from tests.support.places import everywhere, place_of

KEYS = ["", "a", "b", "ä", "𝒳", '["x"]']
US = timedelta(microseconds=1)
TTLS = st.none() | st.integers(0, 30).map(lambda age: age * US)


def speaks(records, key, now, ttl):
    """What the documents promise, in so many words."""
    own = [record for record in records if record.key == key]
    void = max((record.answered_at for record in own if record.outcome == "expired"), default=-1)
    alive = sorted(
        (record for record in own if record.answered_at > void),
        key=lambda record: record.answered_at,
    )
    limits = ttl.max_age_us() | {"timeout": ttl.max_age_us()["error"]}

    def holds(record):
        limit = limits[record.outcome]
        return limit is None or now - record.answered_at < limit

    answers = [record for record in alive if record.outcome in ("ok", "miss")]
    if answers and holds(answers[-1]):
        return answers[-1]
    settled = max(
        (record.answered_at for record in alive if record.outcome in ("ok", "miss", "error")),
        default=-1,
    )
    asked = [
        record for record in alive if record.outcome == "asked" and record.answered_at > settled
    ]
    if asked:
        return asked[-1]
    since = answers[-1].answered_at if answers else -1
    failures = [r for r in alive if r.outcome in ("error", "timeout") and r.answered_at > since]
    return failures[-1] if failures and holds(failures[-1]) else None


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self, root):
        super().__init__()
        self.folder = LedgerFolder(root, "lookup", "f")
        self.records = []
        self.parts = 0
        self.clock = 100

    @rule(data=st.data(), count=st.integers(1, 6))
    def write(self, data, count):
        """Records of some keys, stored in any order of their times; no two at one moment."""
        made = []
        for _ in range(count):
            self.clock += data.draw(st.integers(1, 10))
            outcome = data.draw(st.sampled_from(OUTCOMES))
            response = b"%d" % self.clock if outcome in ("ok", "error") else None
            key, run_id = (
                data.draw(st.sampled_from(KEYS)),
                data.draw(st.sampled_from(["run-1", "run-2"])),
            )
            made.append(StoredAnswer(key, outcome, response, self.clock, run_id))
        made = data.draw(st.permutations(made))
        split = data.draw(st.integers(0, len(made)))
        for some in (made[:split], made[split:]):
            if some:
                self.parts += 1
                self.folder.write_part(f"run-{self.parts % 3}", f"{self.parts}", some)
        self.records += made

    @precondition(lambda self: self.records)
    @rule(grace=st.sampled_from([timedelta(0), 20 * US, timedelta(days=1)]))
    def compact(self, grace):
        assert not compact(self.folder, grace=grace, now_us=self.clock).given_up

    @precondition(lambda self: self.records)
    @rule(keys=st.sets(st.sampled_from(KEYS), max_size=3))
    def forget(self, keys):
        forget(self.folder, keys, now_us=self.clock)
        self.records = [record for record in self.records if record.key not in keys]

    @precondition(lambda self: self.records)
    @rule(part=st.integers(0, 100))
    def write_a_part_again(self, part):
        """As a part that is read twice: a compaction took it in, and it is not deleted yet."""
        parts = self.folder.parts()
        if parts:
            table = self.folder.read([parts[part % len(parts)]])
            self.parts += 1
            self.folder.write_part("run-again", str(self.parts), table)

    @rule(
        keys=st.lists(st.sampled_from([*KEYS, "other"])),
        ok=TTLS,
        miss=TTLS,
        error=TTLS,
        later=st.integers(0, 40),
    )
    def select_some(self, keys, ok, miss, error, later):
        self.check(keys, self.clock + later, Ttl(ok=ok, miss=miss, error=error))

    @invariant()
    def the_ledger_says_what_the_list_says(self):
        self.check(KEYS, self.clock, Ttl(ok=None, miss=None, error=None))

    def check(self, keys, now, ttl):
        found = as_answers(
            select(self.folder, pa.array(keys, pa.string()), now_us=now, ttl=ttl).answers
        )
        expected = [
            speaks(self.records, key, now, ttl) for key in sorted(set(keys), key=str.encode)
        ]
        assert found == [record for record in expected if record is not None]


@pytest.fixture
def place(request, tmp_path):
    return place_of(request, str(tmp_path))


@everywhere("place", on_store=pytest.mark.proof)
def test_a_ledger_equals_a_list_after_any_order_of_writes_compactions_and_erasures(place):
    of_settings = examples(25, stateful_step_count=12, suppress_health_check=[HealthCheck.too_slow])
    ledgers = count()
    run_state_machine_as_test(
        lambda: LedgerMachine(f"{place}/{next(ledgers)}"), settings=of_settings
    )
