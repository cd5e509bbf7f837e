"""The keys of a day that jobs answer: which need no job, and the values that an item has."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import one_chunk
from jobs.declare.answers.answer_json import dump
from jobs.declare.ledger_settings import Ttl
from jobs.declare.vendor_jobs import Item, JobLookup
from jobs.ledger.answers import ANSWERS, SCHEMA
from jobs.ledger.job_files import KEY, Intent
from jobs.ledger.selection import Search
from jobs.run.keys.driver_keys import DriverKeys
from jobs.run.keys.hits import Hits
from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.vendor_jobs.day_jobs import DayJobs
from jobs.run.keys.vendor_jobs.job_items import JobItems
from jobs.run.keys.vendor_jobs.waits import waited
from jobs.schema.columns import NOT_REPEATED


class KeyRecords:
    """Finds the outcome of each key of a day."""

    def __init__(
        self, hits: Hits, lookup: JobLookup, jobs: DayJobs, ttl: Ttl, clock: Callable[[], float]
    ) -> None:
        self._hits, self._lookup, self._jobs = hits, lookup, jobs
        self._ttl, self._clock = ttl, clock
        self._search = Search(jobs.files.folder, jobs.texts)

    # -- records -----------------------------------------------------------------------------------
    def settled(self) -> pa.Table:
        """Return the record of each key that needs no job, as rows find it.

        What held when the day began to wait, or came since, holds to its end.
        """
        now = self._clock()
        self._search.update(round(now * 1e6))
        ttl = self._ttl.longer(waited(self._jobs.since, now))
        found = self._search.selected(now_us=round(now * 1e6), ttl=ttl).answers
        is_answer = pc.is_in(found["outcome"], value_set=pa.array(ANSWERS))
        since = pa.scalar(round(self._jobs.since * 1e6), pa.timestamp("us", "UTC"))
        is_older = pc.less(found["answered_at"], since)
        is_final = pc.equal(found["outcome"], "error")
        is_spent = pc.is_in(found["key"], value_set=self._jobs.without_retries_left())
        settles = pc.or_(pc.or_(is_answer, is_older), pc.or_(is_final, is_spent))
        settles = pc.and_(settles, pc.not_equal(found["outcome"], "asked"))
        return found if pc.all(settles).as_py() else found.filter(settles)  # which copies it

    def with_lost(self, records: pa.Table) -> pa.Table:
        """Return the records, and one for each further key of a job that is lost."""
        lost = pa.concat_tables(
            [SCHEMA.empty_table(), *map(self._lost_records, sorted(self._jobs.lost))]
        )
        is_known = pc.is_in(lost["key"], value_set=one_chunk(records["key"]))
        of_day = pc.is_in(lost["key"], value_set=self._jobs.texts)
        return pa.concat_tables([records, lost.filter(pc.and_not(of_day, is_known))])

    def _lost_records(self, token: str) -> pa.Table:
        intent = self._jobs.intent(token)
        words = dump(
            f"job {token} may have been submitted, and its id is lost; {NOT_REPEATED}, unless "
            f"`tidegate jobs forget {token}` lets go of it"
        )
        keys, count = intent.keys[KEY], intent.keys.num_rows
        at = pa.scalar(round(intent.at * 1e6), pa.timestamp("us", "UTC"))
        values = ("asked", words.decode(), at, intent.run_id)
        return pa.table([keys, *(pa.repeat(value, count) for value in values)], schema=SCHEMA)

    def unsent(self, records: pa.Table, intents: Sequence[Intent]) -> pa.Array:
        """Return the keys that neither a record nor one of these intents covers."""
        keys = self._jobs.texts
        for known in (records["key"], *(intent.keys[KEY] for intent in intents)):
            keys = keys.filter(pc.invert(pc.is_in(keys, value_set=one_chunk(known))))
        return keys

    # -- values ------------------------------------------------------------------------------------
    def values(self, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
        """Return TEXT and the columns of the key, for each of these keys that the day has."""
        keys, wanted = self._hits.keys, self._hits.keys.wanted
        lines = wanted.filter(pc.is_in(wanted[TEXT], value_set=one_chunk(texts)))
        if isinstance(keys, DriverKeys):
            found = keys.table(lines)
        else:
            found = keys.frame(lines, lines).select(*self._hits.names, TEXT).toArrow()
            found = found.filter(pc.is_in(found[TEXT], value_set=one_chunk(texts)))
        return found.select([*self._hits.names, TEXT])

    def items(self, intent: Intent) -> Sequence[Item] | None:
        """Return the items of a job in order; None if this run does not know their keys."""
        keys = intent.keys
        if keys.num_columns == 1:  # personal keys
            known = self.values(keys[KEY])
            places = pc.index_in(keys[KEY], value_set=one_chunk(known[TEXT]))
            if places.null_count:
                return None
            keys = known.select([TEXT, *self._hits.names]).take(places)
        return JobItems(keys, tuple(self._lookup.keys))
