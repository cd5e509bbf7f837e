"""`replay --where`: prices the dead letters with some reason, and calls again for exactly those."""

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from jobs.commands.expiry import expire_keys
from jobs.commands.ledgers import DeclaredLedger, declared_ledgers
from jobs.commands.lost_answers import row_ids, why_answers_are_lost, written_files
from jobs.commands.replaying.dead_letters import DayLetters, find_dead_letters
from jobs.commands.replaying.replay import failed_answers, refuse_other_requests
from jobs.declare.chains import places_read
from jobs.declare.enrichment import Enrichment
from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.values.prices import cost_of, in_force, price_text, reported_units
from jobs.declare.vendor_jobs import refuse_jobs
from jobs.errors import DeclarationError
from jobs.ledger.selection import select
from jobs.process.day_events import DayEvent, DayResult
from jobs.process.day_options import NO_CALLS, DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.run.enrich_day import STOPPED
from jobs.run.estimating.requests_of_calls import count_requests
from jobs.schema import columns as schema
from jobs.schema.facts import Facts
from jobs.schema.records import DayRecord, LookupFacts
from jobs.storage.locked_folders import temporary_folder
from jobs.wording import counted, percent

LEFT = ("error", "unknown", "not_asked")  # outcomes of rows that still have no answer


@dataclass(frozen=True)
class PricedLetters(Facts):
    """The chosen letters of a lookup on a day, and what calling for them costs today."""

    day: str
    lookup: str
    letters: int
    calls: int  # distinct keys without a stored answer
    requests: int  # with full batches
    cost: str | None  # decimal; None: no price is declared, or only an answer shows its units
    price: str  # as "0.0040 USD per item"; empty: none
    requests_are_least: bool = False  # calls may send more: pages, a coroutine


@dataclass(frozen=True)
class Chosen:
    """The dead letters of a day that are called again.

    Attributes:
        day: The day.
        keys: By lookup.
        failed: By ledger, those of the keys whose stored outcome is a failure.
        priced: By lookup, what calling for them costs.
        removed: Letters in files that `vacuum` removed; they may or may not have the reason.
    """

    day: str
    keys: dict[str, list[str]]
    failed: tuple[tuple[DeclaredLedger, list[str]], ...]
    priced: tuple[PricedLetters, ...]
    removed: int = 0


def choose_letters(
    enrichment: Enrichment, where: str, day: str | None, clock: Callable[[], int] = time.time_ns
) -> list[Chosen]:
    """Return by day the letters with this text in their reason, priced. Calls and changes nothing.

    Raises DeclarationError as `replay`, and for a lookup that calls for every row (cache=None).
    """
    refuse_jobs(enrichment.lookups, "a replay")
    if enrichment.ledger is None:
        raise DeclarationError(
            f"{enrichment.name} has no ledger: a replay would call for all rows."
        )
    chosen = []
    read = {enrichment.lookups[place].name for place in places_read(enrichment.lookups)}
    for found in find_dead_letters(enrichment, day, where):
        if found.rows:
            refuse_other_requests(enrichment, found.day)
            if chained := sorted(read & {row["_lookup"] for row in found.rows}):
                raise DeclarationError(
                    f"lookup {chained[0]}: other lookups read its answers, and would be asked for "
                    "keys that --where does not choose. Replay the whole day."
                )
            chosen.append(_priced(enrichment, found, clock() // 1000))
        elif found.removed:
            chosen.append(Chosen(found.day, {}, (), (), found.removed))
    return chosen


def _priced(enrichment: Enrichment, found: DayLetters, now_us: int) -> Chosen:
    rows = Counter((row["_lookup"], row["_key"]) for row in found.rows if row["_key"] is not None)
    failed = tuple(_failed(enrichment, found))
    of_lookups = {kept.lookup.name: len(stored) for kept, stored in failed}
    today = dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC).date().isoformat()
    keys, priced = {}, []
    for kept in declared_ledgers([("", enrichment)]):
        lookup = kept.lookup
        lookup_keys = sorted(key for name, key in rows if name == lookup.name)
        if not lookup_keys:
            continue
        if lookup.cache is None:
            raise DeclarationError(
                f"lookup {lookup.name}: cache=None: it calls for rows, and --where chooses keys. "
                "Replay the whole day."
            )
        wanted = pa.array(lookup_keys, pa.string())
        known = select(kept.folder, wanted, now_us=now_us, ttl=FOR_EVER).answers.num_rows
        calls = len(lookup_keys) - known + of_lookups.get(lookup.name, 0)
        sent = count_requests(lookup, calls)
        prices = in_force(lookup.prices, today)
        cost = None
        if lookup.prices and not reported_units(lookup.prices):
            cost = f"{cost_of(prices, {'item': calls, 'request': sent.requests}):f}"
        letters = sum(count for (name, _), count in rows.items() if name == lookup.name)
        keys[lookup.name] = lookup_keys
        priced.append(
            PricedLetters(
                found.day,
                lookup.name,
                letters,
                calls,
                sent.requests,
                cost,
                price_text(prices),
                sent.are_least,
            )
        )
    return Chosen(found.day, keys, failed, tuple(priced))


def _failed(
    enrichment: Enrichment, found: DayLetters
) -> Iterator[tuple[DeclaredLedger, list[str]]]:
    columns = {name: [row[name] for row in found.rows] for name in ("_lookup", "_key")}
    letters = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    yield from failed_answers(enrichment, found.day, letters)


def replay_chosen(
    pipeline: DayPipeline, days: Sequence[Chosen], caps: Sequence[str]
) -> Iterator[DayEvent]:
    """Run the days with stored answers of any age, and calls for the chosen letters only, with
    `caps` as for `replay`.

    Other rows without an answer get the outcome not_asked. A day is held back if more of its rows
    are not asked or failed than the declaration tolerates. A day that a service stops, or a crash,
    ends the replay; the same call continues it.
    """
    for chosen in days:
        for kept, keys in chosen.failed:
            expire_keys(kept.folder, keys)
        with temporary_folder() as folder:
            file = Path(folder, "keys.json")
            file.write_text(json.dumps(chosen.keys), encoding="utf-8")
            options = (*NO_CALLS, "--only-keys", str(file), *caps)
            for event in pipeline.run([chosen.day], DayOptions(options, accept=why_refused)):
                yield event
                if isinstance(event, DayResult) and (event.code == STOPPED or event.crashed):
                    return


def why_refused(record: DayRecord) -> str:
    """Return why a day is held back: rows without an answer, or answers that readers would lose."""
    return leaves_few(record) or why_answers_are_lost(record)


def leaves_few(record: DayRecord) -> str:
    """Return why the table has too many rows of the day without an answer; empty if it has not."""
    tolerated = record.facts.declared.error_tolerance
    declared = {lookup.name: lookup for lookup in record.facts.declared.lookups}
    kept = record.rows_published - record.figures.rows_out
    for lookup in record.figures.lookups:
        rows = declared[lookup.name].rows_judged(lookup.outcomes) + kept
        left = _rows_left(record, declared[lookup.name], lookup.outcomes)
        if rows and left / rows > tolerated:
            return (
                f"lookup {lookup.name}: {counted(left, 'row')} of {rows:,} would have no answer, "
                f"{percent(left / rows)}; tolerated {percent(tolerated)}. The answers are stored: "
                "replay the other letters too."
            )
    return ""


def _rows_left(record: DayRecord, lookup: LookupFacts, outcomes: Mapping[str, int]) -> int:
    """Return the rows without an answer; not those that a later vendor of a waterfall answered."""
    left = sum(outcomes.get(outcome, 0) for outcome in LEFT)
    choice = record.facts.declared.find_choice(lookup)
    if not left or choice is None:
        return left
    files, names = written_files(record), schema.SOURCE_IDENTITY  # a row_id may repeat
    failed = row_ids(files, names, choice.status, (*schema.FAILED, "not_asked"))
    return len({*row_ids(files, names, schema.status(lookup.name), LEFT)}.intersection(failed))
