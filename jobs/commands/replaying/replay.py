"""`replay`: calls again for the dead letters of a day only, and publishes the completed day."""

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.clients.client import Client
from jobs.clients.registry import client_for
from jobs.commands.expiry import expire_keys
from jobs.commands.ledgers import DeclaredLedger, declared_ledgers
from jobs.commands.lost_answers import why_calls_lose_answers
from jobs.declare.chains import lookups_read
from jobs.declare.enrichment import Enrichment
from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.lookup import Lookup
from jobs.declare.vendor_jobs import refuse_jobs
from jobs.errors import DeclarationError
from jobs.ledger.answers import ANSWERS, StoredAnswer, as_answers
from jobs.ledger.keys import asked_texts
from jobs.ledger.plan import run_of_keys
from jobs.ledger.selection import select
from jobs.process.day_events import DayEvent
from jobs.process.day_options import ANY_AGE, DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.schema import columns as schema
from jobs.schema.records import DayRecord
from jobs.storage.parquet_files import parquet_source
from jobs.storage.stored_files import is_there
from jobs.tables import dead_letters
from jobs.tables.delivery import with_rows
from jobs.tables.delta.asked_keys import days_without_runs, files_of_days, names_keys, runs_in_table
from jobs.tables.records import run_records
from jobs.tables.rows_beside import letters
from jobs.task.rows.ledger_hits import stored_columns
from jobs.wording import counted

# fields of a lookup that change its answers without another request
MAPPING = ("returns", "paths", "error_when", "miss_when", "answer_when", "required", "answer")


def find_letters(enrichment: Enrichment, day: str) -> pa.Table:
    """Return `_lookup` and `_key` of the dead letters of the day's held-back or published run.

    Raises DeclarationError if the day has no run record, or the files of that run are removed.
    """
    last = last_run(enrichment, day)
    if last is None:
        raise DeclarationError(
            f"{enrichment.name}: {day} was never run to its end; there is nothing to replay. Run "
            "it."
        )
    if last.state == "held back":
        columns = ["_lookup", "_key"]
        batches = [batch.select(columns) for batch in held_back_letters(last)]
        if last.dead_letters and not any(batch.num_rows for batch in batches):
            raise DeclarationError(f"{enrichment.name}: {removed_letters(last)}")
        return pa.Table.from_batches(batches, pa.schema([(name, pa.string()) for name in columns]))
    return published_letters(enrichment, day, *runs_in_table(enrichment))


def published_letters(
    enrichment: Enrichment, day: str, published: set[tuple[str, str]], unknown: set[str]
) -> pa.Table:
    """Return the letters of the runs that readers of a day see; killed tries have letters too.

    `published` and `unknown` are from `runs_in_table`: all letters of an unknown day count.
    """
    table = dead_letters.of_day(enrichment.output.path, enrichment.input.partition, day)
    are_shown = [
        day in unknown or (day, run) in published for run in table[schema.RUN_ID].to_pylist()
    ]
    return table.filter(pa.array(are_shown, pa.bool_()))


def held_back_letters(run: DayRecord) -> Iterator[pa.RecordBatch]:
    """Yield the dead letters in the files of a held-back run; none if vacuum removed the files."""
    if all(map(is_there, run.facts.published_files)):
        yield from letters(with_rows(run.facts), run.facts)


def removed_letters(run: DayRecord) -> str:
    """Return a sentence about the letters of a held-back run whose files are removed."""
    return (
        f"vacuum removed the files of {run.facts.day}, with its "
        f"{counted(run.dead_letters, 'dead letter')}. Run the day again."
    )


def replay(pipeline: DayPipeline, day: str, caps: Sequence[str] = ()) -> Iterator[DayEvent] | None:
    """Run the day with stored answers of any age and calls only for its dead letters.

    Rows that are new in the input are called too. After a stop or a kill, the same call continues.
    `caps` are options of the Spark program that stop the run at a number or cost of calls.

    Returns:
        The events; None if the day has no dead letters.

    Raises:
        DeclarationError: Every row would be called: there is no ledger, or the request changed.
    """
    options = DayOptions((*ANY_AGE, *caps), accept=why_calls_lose_answers)
    return pipeline.run([day], options) if prepare(pipeline.enrichment, day) else None


def prepare(enrichment: Enrichment, day: str) -> int:
    """Prepare the ledger so that a run of the day with ANY_AGE calls only for its dead letters.

    Returns their number; with 0 there is nothing to run. Raises DeclarationError like `replay`.
    """
    refuse_jobs(enrichment.lookups, "a replay")
    if enrichment.ledger is None:
        raise DeclarationError(
            f"{enrichment.name} has no ledger: a replay would call for every row. Run the day "
            "instead."
        )
    run_records.fetch(enrichment.name, enrichment.output.path)
    letters = find_letters(enrichment, day)
    if letters.num_rows:
        refuse_other_requests(enrichment, day)
        void_what_failed(enrichment, day, letters)
    return int(letters.num_rows)


def refuse_other_requests(enrichment: Enrichment, day: str) -> None:
    """Raise DeclarationError if a run of the day could call for more than its letters."""
    last = last_run(enrichment, day)
    if last is None:
        return
    if last.state != "held back" and day in days_without_runs(enrichment):
        raise DeclarationError(
            f"{enrichment.name}: another program wrote files of {day}, as OPTIMIZE does, which do "
            "not tell the keys of their rows: a replay could call for more than its dead letters. "
            "Run the day instead; tidegate plan says what it asks."
        )
    for kept in declared_ledgers([("", enrichment)]):
        reason = _asked_otherwise(enrichment, last, kept.lookup) or _not_stored(
            enrichment, last, kept
        )
        if reason:
            raise DeclarationError(
                f"{enrichment.name}: lookup {kept.lookup.name}: {reason}: a replay of {day} would "
                "call for more than "
                "its dead letters. Run the day instead; tidegate plan says what it asks."
            )


def _asked_otherwise(enrichment: Enrichment, run: DayRecord, lookup: Lookup) -> str:
    """Return a clause if the lookup is new since the run, or has other keys; else empty."""
    if all(declared.name != lookup.name for declared in run.facts.declared.lookups):
        return "it is new since then"
    before, now = run.facts.declared.fields, enrichment.facts().fields
    made_of = [f"lookups.{lookup.name}.keys.{part}" for part in lookup.keys]
    changed = any(before.get(name, now.get(name)) != now.get(name) for name in made_of)
    condition = f"lookups.{lookup.name}.when"
    if changed or before.get(condition) != now.get(condition):
        return "its keys have changed since then"
    lookups = list(enrichment.lookups)
    names = [declared.name for declared in lookups]
    for place in lookups_read(lookups, names.index(lookup.name)):
        below = [f"lookups.{names[place]}.{field}" for field in MAPPING]
        if any(_under(name, before) != _under(name, now) for name in below):
            return f"its keys are made of answers of {names[place]}, whose mapping has changed"
    return ""


def _under(field: str, declared: Mapping[str, str]) -> dict[str, str]:
    """Return a field of a declaration with all that is in it."""
    return {
        name: value
        for name, value in declared.items()
        if name == field or name.startswith(f"{field}.")
    }


def _not_stored(enrichment: Enrichment, run: DayRecord, kept: DeclaredLedger) -> str:
    """Return a clause if the ledger lacks answers of the run that were not refreshed."""
    keys = _answered(enrichment, run, kept.lookup)
    known = select(
        kept.folder,
        pa.array(sorted(keys), pa.string()),
        now_us=time.time_ns() // 1000,
        ttl=FOR_EVER,
    )
    if missing := len(keys) - known.answers.num_rows - len(known.refreshed):
        return (
            f"the ledger lacks {missing:,} of {len(keys):,} answers to its requests as declared now"
        )
    return ""


def last_run(enrichment: Enrichment, day: str) -> DayRecord | None:
    """Return the run that a replay completes: a later held-back, or the published run."""
    runs = [
        record for record in run_records.load(enrichment.name, day) if record.state != "written"
    ]
    return runs[-1] if runs else None


def _answered(enrichment: Enrichment, run: DayRecord, lookup: Lookup) -> set[str]:
    published = (file for day, file in files_of_days(enrichment) if day == run.facts.day)
    keys: set[str | None] = set()
    key, status = schema.key(lookup.name), schema.status(lookup.name)
    for file in run.facts.published_files if run.state == "held back" else published:
        if names_keys(file, lookup.name):
            rows = pq.read_table(parquet_source(file), columns=[key, status], partitioning=None)
            answered = rows.filter(pc.is_in(rows[status], value_set=pa.array(ANSWERS)))
            keys.update(asked_texts(answered[key], hidden=enrichment.has_personal_key(lookup)))
    return {key for key in keys if key is not None}


def void_what_failed(enrichment: Enrichment, day: str, letters: pa.Table) -> int:
    """Expire stored answers that made dead letters: misses, and answers that do not fit.

    Answers of an unrepeatable call stay, and answers that an interrupted replay has paid. Returns
    the number of expired answers.
    """
    failed = failed_answers(enrichment, day, letters)
    return sum(expire_keys(kept.folder, keys) for kept, keys in failed)


def failed_answers(
    enrichment: Enrichment, day: str, letters: pa.Table
) -> Iterator[tuple[DeclaredLedger, list[str]]]:
    """Yield by lookup the keys of stored answers that made dead letters and are called again."""
    asked_again = _AskedAgain.of(enrichment, day)
    for kept in declared_ledgers([("", enrichment)]):
        keys = letters.filter(pc.equal(letters["_lookup"], kept.lookup.name))["_key"].drop_null()
        if len(keys) and kept.lookup.repeatable:
            caller = client_for(kept.lookup, 1)
            stored = as_answers(
                select(kept.folder, keys, now_us=time.time_ns() // 1000, ttl=FOR_EVER).answers
            )
            yield (
                kept,
                [
                    answer.key
                    for answer in stored
                    if _makes_a_letter(answer, kept.lookup, caller)
                    and not asked_again.includes(answer)
                ],
            )


@dataclass(frozen=True)
class _AskedAgain:
    """The calls of interrupted runs since the letters were written; only the ledger has them."""

    since: int  # µs since the epoch
    runs: frozenset[str]

    @classmethod
    def of(cls, enrichment: Enrichment, day: str) -> Self:
        last = last_run(enrichment, day)
        if last is None:
            return cls(0, frozenset())
        since = round(dt.datetime.fromisoformat(last.facts.finished_at).timestamp() * 1e6)
        runs = [run for _, run, _ in run_records.run_logs(enrichment.name, day)]
        return cls(since, frozenset({*runs, *map(run_of_keys, runs)}))

    def includes(self, stored: StoredAnswer) -> bool:
        return stored.answered_at > self.since and stored.run_id in self.runs


def _makes_a_letter(stored: StoredAnswer, lookup: Lookup, caller: Client) -> bool:
    if stored.outcome == "miss":
        return lookup.on_miss == "dead_letter"
    return stored.outcome == "ok" and stored_columns(caller, stored) is None
