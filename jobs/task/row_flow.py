"""Feeds a task's rows into the first operator and collects them from the last."""

import asyncio
import queue
from collections.abc import Sequence

import pyarrow as pa

from asyncio_core import StreamElement, StreamRecord
from jobs.arrow_values import plus_zero
from jobs.clients import request_counter
from jobs.clients.client import Client
from jobs.declare.lookup import Key
from jobs.errors import RowFailed
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.index import AnswerIndex
from jobs.task.chain import Chain
from jobs.task.durable_output import Finished
from jobs.task.lease.call_budget import CallBudget
from jobs.task.lookup.lookup_function import null_key_text
from jobs.task.lookup.lookup_state import KnownRows, Row
from jobs.task.lookup.task_ledger import TaskLedger
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import Assembler, EventTimes, InputBatch
from jobs.task.rows.asked_once import AskedOnce
from jobs.task.rows.chained_keys import has_null_key, with_chained_keys
from jobs.task.rows.known_outcomes import KnownOutcomes, OutcomeSource
from jobs.task.rows.ledger_hits import LedgerHits
from jobs.task.rows.row_elements import RowElements
from jobs.task.task_limits import TaskLimits
from jobs.task.threads.read_ahead import InputQueue

ROWS_PER_BATCH = 2000  # of output, where rows went through the operators singly
KNOWN_PER_BATCH = 4000  # if most rows are known: a batch costs about the same at any size
TURNS_OF_A_CALL = 6  # of the loop, from an answer's bytes to those of the next request


class RowInput:
    """The rows of Spark's input.

    Attributes:
        arrived: The batches that the reader has read.
        failed: Whether the input broke, so that another attempt of the task may succeed.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        ledgers: Sequence[TaskLedger | None],
        elements: RowElements,
        limits: TaskLimits,
    ) -> None:
        self._plan = plan
        self._ledgers = ledgers
        self._elements = elements
        self._limits = limits
        self._sequence = 0  # of the next row
        self._event_times = EventTimes(plan.layout.max_out_of_orderness_ms)
        self.arrived = InputQueue()
        self.failed = False

    async def feed(self, chain: Chain, allowance: CallBudget | None) -> None:
        """Feed all input into the first operator, with watermarks by event time.

        The ledger is read just before the first calls, because where Spark runs a task twice at
        once, the other attempt may store answers until then.
        """
        known_at: list[KnownOutcomes] = []
        while (item := await self.arrived.take()) is not None:
            if isinstance(item, BaseException):
                self.failed = True
                raise item
            await self._limits.given.wait()
            if not known_at:
                self._read_earlier_attempts(allowance)
                known_at = [*map(self._known_outcomes, range(len(chain.callers)), chain.callers)]
            rows = min(outcomes.rows_at_once for outcomes in known_at)
            for start in range(0, item.num_rows, rows):
                await self._feed_rows(item.slice(start, rows), chain, known_at)
        self._limits.all_rows_came.set()
        await chain.operators[0].end_input()

    async def _feed_rows(
        self, rows: pa.RecordBatch, chain: Chain, known_at: Sequence[KnownOutcomes]
    ) -> None:
        layout = self._plan.layout
        keys: list[Sequence[Key | None]] = []
        known: list[pa.RecordBatch | None] = []
        for place, (names, outcomes) in enumerate(zip(layout.keys, known_at, strict=True)):
            if layout.made(place):
                rows = with_chained_keys(rows, layout, place, known)
            rows = _with_plus_zeros(rows, names)
            keys.append(read_key_tuples(rows, names))
            if layout.wanted and has_null_key(rows, layout, place, keys[-1]):
                raise RowFailed(null_key_text(layout.lookups[place]))
            await _let_calls_run(chain)
            known.append(outcomes.find(rows, keys[-1]))
            await _let_calls_run(chain)
        batch = InputBatch(rows, layout, self._sequence, self._event_times, known)
        self._sequence += rows.num_rows
        for element in self._elements.split(batch, keys):
            if chain.links:
                await chain.links[0].room()
            await chain.operators[0].process_element(element)
        await asyncio.sleep(0)
        await _let_calls_run(chain)

    def _read_earlier_attempts(self, allowance: CallBudget | None) -> None:
        for place, ledger in enumerate(self._ledgers):
            if ledger is not None:
                answers = ledger.read_earlier_attempts()
                request_counter.task_counts().earlier[self._plan.lookups[place].name] = answers
                if allowance is not None:
                    allowance.spent_before(place, answers)

    def _known_outcomes(self, place: int, caller: Client) -> KnownOutcomes:
        plan, ledger = self._plan, self._ledgers[place]
        indexes = () if ledger is None else ledger.indexes
        return known_outcomes(plan, place, caller, indexes)


def _with_plus_zeros(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the batch with one zero in the keys: Spark takes 0.0 and -0.0 for the same key."""
    for name in names:
        field, column = batch.schema.field(name), batch.column(name)
        if (made := plus_zero(column)) is not column:
            batch = batch.set_column(batch.schema.get_field_index(name), field, made)
    return batch


def known_outcomes(
    plan: PartitionPlan, place: int, caller: Client, indexes: Sequence[AnswerIndex]
) -> KnownOutcomes:
    """Return a lookup's outcomes that are known before any call: prefetched, else stored.

    Args:
        plan: The plan of the tasks.
        place: The lookup's place.
        caller: Maps stored answers to columns.
        indexes: Of stored answers, by precedence.
    """
    lookup, ledger = plan.lookups[place], plan.ledgers[place] if plan.ledgers else None
    answers = plan.layout.answers[place]
    sources: list[OutcomeSource] = []
    if plan.asked_first and (file := plan.asked_first[place]) is not None:
        sources.append(AskedOnce.open(file))
    sources += [
        LedgerHits(
            index, caller, answers, name=lookup.name, hidden=ledger is not None and ledger.hidden,
            idempotent=lookup.idempotent,
        )
        for index in indexes
    ]  # fmt: skip
    may_call = plan.may_call and place not in plan.given_up
    return KnownOutcomes(answers, sources, names=tuple(lookup.keys), may_call=may_call)


async def _let_calls_run(chain: Chain) -> None:
    """Yield to the loop so that arrived answers are handled and the next requests leave.

    Known rows never fill a queue, and a batch of them takes as long as many answers.
    """
    if any(operator.statistics().running for operator in chain.operators):
        for _ in range(TURNS_OF_A_CALL):
            await asyncio.sleep(0)


class RowOutput:
    """The rows that leave the last operator, as batches.

    Attributes:
        batches: The finished batches with their positions in the ledgers.
        rows_ready: The number of rows that have left since the last batch.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        partition: int,
        ledgers: Sequence[TaskLedger | None],
        elements: RowElements,
    ) -> None:
        self._assembler = Assembler(plan.layout, partition)
        self._ledgers = [ledger for ledger in ledgers if ledger is not None]
        self._elements = elements
        self._ready: list[Row | KnownRows] = []
        self.rows_ready = self._single_ready = 0
        self.batches: queue.SimpleQueue[Finished | BaseException | None] = queue.SimpleQueue()
        self._rows_before = 0

    @property
    def rows(self) -> int:
        """The number of rows that have left so far."""
        return self._rows_before + self.rows_ready

    def collect(self, element: StreamElement) -> None:
        if isinstance(element, StreamRecord):
            self._ready.append(element.value)
            if type(element.value) is Row:
                self.rows_ready += 1
                self._single_ready += 1
            else:
                self.rows_ready += len(element.value.numbers)
            if self._single_ready >= ROWS_PER_BATCH or self.rows_ready >= KNOWN_PER_BATCH:
                self.flush()

    def collect_by_key(self, element: StreamElement) -> None:
        if isinstance(element, StreamRecord) and type(element.value) is Row:
            self._elements.note_left(element.value)
        self.collect(element)

    def flush(self, *, last: bool = False) -> None:
        """Make a batch of the rows that have left.

        Args:
            last: Whether no more rows come; then the ledgers store their answers at once.
        """
        if self._ready:
            self._rows_before += self.rows_ready
            stored = [ledger.durability_mark() for ledger in self._ledgers]
            self.batches.put((self._assembler.batch(self._ready), stored))
            self._ready, self.rows_ready, self._single_ready = [], 0, 0
        if last:
            for ledger in self._ledgers:
                ledger.hurry()
