"""`refresh`: expires stored answers that meet a condition, and reruns the days that use them."""

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.commands.expiry import expire_keys
from jobs.commands.ledgers import DeclaredLedger
from jobs.commands.replaying.condition import Condition
from jobs.declare.enrichment import Enrichment
from jobs.declare.ledger_settings import FOR_EVER
from jobs.input.day import files_in
from jobs.ledger.answers import ANSWERS, SCHEMA, as_answers
from jobs.ledger.changes.compaction import read_records
from jobs.ledger.generations import Contents, read_contents
from jobs.ledger.resolution import answer_times, believed
from jobs.ledger.selection import Search
from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import runs_at_work
from jobs.tables.delta.asked_keys import KeysOf, days_that_asked

ROWS_AT_ONCE = 10_000
MARK = "asked"
DAY = 86_400_000_000  # µs


@dataclass(frozen=True)
class Matched:
    """The answers that meet a condition, and their days.

    Attributes:
        keys: Keys with an effective answer that meets the condition.
        void: Keys that an earlier refresh expired, without a call since.
        days: module:name, enrichment, and its published days with one of these keys, or with an
            answer that an earlier refresh expired.
    """

    keys: tuple[str, ...]
    void: tuple[str, ...]
    days: tuple[tuple[str, Enrichment, tuple[str, ...]], ...]


def find(
    kept: DeclaredLedger,
    where: str,
    *,
    first: str | None = None,
    last: str | None = None,
    before: dt.datetime | None = None,
) -> Matched:
    """Find stored answers that meet a condition, and days that use them; change nothing.

    Args:
        kept: The lookup's ledger.
        where: The condition. Marks whose answer was lost meet it only by their outcome, and only
            those of runs that no longer call.
        first: The first day (UTC) of the answers.
        last: The last day (UTC) of the answers, included.
        before: The end of the answers' time, excluded.

    Raises:
        DeclarationError: The condition is invalid.
        LedgerError: The ledger cannot be read.
    """
    condition, now_us = Condition(kept.lookup, where), time.time_ns() // 1000
    since = 0 if first is None else _us(first)
    until = min(
        1 << 62 if last is None else _us(last) + DAY,
        1 << 62 if before is None else int(before.timestamp() * 1e6),
    )
    candidates = _candidates(kept.folder, condition, since, until)
    search = Search(kept.folder, pa.array(sorted(candidates), pa.string()))
    search.update(now_us)
    selected = search.selected(now_us=now_us, ttl=FOR_EVER)
    newest = _between(_keep_outcomes(selected.answers), since, until)
    at_work = pa.array(sorted(runs_at_work(kept.folder, now_us)), pa.string())
    may_end = pc.is_in(newest["run_id"], at_work)
    newest = newest.filter(pc.invert(pc.and_(pc.equal(newest["outcome"], MARK), may_end)))
    keys = tuple(_keys_that_meet(condition, newest))  # a newer answer may not meet the condition
    void = tuple(selected.refreshed.to_pylist())
    wanted = KeysOf(kept.lookup.name, tuple(kept.lookup.keys), {*keys, *void})
    expired = _expired_at(search.seen.voiding, now_us)
    days = tuple(
        (
            reference,
            enrichment,
            tuple(days_that_asked(enrichment, wanted, expired)) if wanted.texts or expired else (),
        )
        for reference, enrichment in kept.read_by
    )
    return Matched(keys, void, days)


def _candidates(folder: LedgerFolder, condition: Condition, since: int, until: int) -> set[str]:
    """Return the keys with any record of this time that meets the condition."""

    def read(contents: Contents) -> set[str]:
        records = read_records(folder, contents, SCHEMA.names, contents.parts)
        tables = (_between(_keep_outcomes(table), since, until) for table in records)
        slices = (
            table.slice(start, ROWS_AT_ONCE)
            for table in tables
            for start in range(0, len(table), ROWS_AT_ONCE)
        )
        return {key for records in slices for key in _keys_that_meet(condition, records)}

    return read_contents(folder, read)


def _expired_at(voiding: pa.Table, now_us: int) -> dict[str, int]:
    """Return the keys that a refresh expired, each with the time in µs."""
    marks = voiding.filter(pc.equal(voiding["outcome"], "expired"))
    times = believed(answer_times(marks), now_us)
    return dict(zip(marks["key"].to_pylist(), times.tolist(), strict=True))


def input_first(enrichment: Enrichment, days: Sequence[str]) -> list[str]:
    """Return the days, with days without input last: at such a day a run ends.

    The input of an old day may be deleted by a retention rule.
    """
    return sorted(days, key=lambda day: not files_in(enrichment.input, day))


def expire(kept: DeclaredLedger, matched: Matched) -> int:
    return expire_keys(kept.folder, matched.keys)


def _keys_that_meet(condition: Condition, records: pa.Table) -> list[str]:
    """Return the keys whose records meet the condition. A mark, which has no answer that could be
    wrong, counts only if it meets the condition by its outcome.
    """
    answers = as_answers(records)
    met = [
        answer for answer, true in zip(answers, condition.holds_for(answers), strict=True) if true
    ]
    marks = [mark for mark in met if mark.outcome == MARK]
    anyway = condition.holds_for([mark._replace(outcome="") for mark in marks])  # type: ignore[arg-type]
    useless = {mark for mark, true in zip(marks, anyway, strict=True) if true}
    return [mark.key for mark in met if mark not in useless]


def _keep_outcomes(table: pa.Table) -> pa.Table:
    records = table.cast(SCHEMA)
    return records.filter(pc.is_in(records["outcome"], pa.array((*ANSWERS, MARK))))


def _between(answers: pa.Table, since: int, until: int) -> pa.Table:
    at = answers["answered_at"].cast(pa.int64())
    return answers.filter(pc.and_(pc.greater_equal(at, since), pc.less(at, until)))


def _us(day: str) -> int:
    midnight = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
    return int(midnight.timestamp()) * 1_000_000
