"""Checks that readers see the answer of the right vendor of a waterfall."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from data_quality.check import Check
from data_quality.findings import Finding
from data_quality.rows.task_rows import Faults, Flags, Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest
from jobs.schema.columns import (
    FAILED,
    HAS_ANSWER,
    published_answered_at,
    published_status,
    source,
)
from jobs.schema.records import ChoiceFacts, DeclaredFacts
from jobs.wording import counted, rounded

NOBODY = -1  # no vendor's answer counts: no vendor was asked or answered, or a vendor failed


class VendorRows(NamedTuple):
    """Counts of rows."""

    asked: int
    chosen: int
    refused: int
    missed: int
    bought: int  # chosen, by a call of this run: a row of each key


@dataclass(frozen=True)
class Chosen:
    rows: int
    wrong: Faults  # another answer, status, time or vendor than the rule gives
    counts: dict[str, VendorRows]  # by vendor


class VendorChosen(Check):
    name = "vendor_chosen"

    def __init__(self, declared: DeclaredFacts, choice: ChoiceFacts) -> None:
        super().__init__(declared, choice.name)
        self.choice = choice

    @property
    def promise(self) -> str:
        return "Each row has the answer of its first vendor that was accepted."

    @property
    def shown(self) -> list[str]:
        return [self.choice.status, self.choice.vendor, *map(published_status, self.choice.vendors)]

    @property
    def needs(self) -> tuple[str, ...]:
        names = [name for name, _ in self.choice.columns]
        of_vendors = [f"{vendor}_{name}" for vendor in self.choice.vendors for name in names]
        times = [self.choice.answered_at, *map(published_answered_at, self.choice.vendors)]
        return (*self.shown, *names, *of_vendors, *times, *map(source, self.choice.vendors))

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Chosen:
        choice = self.choice
        statuses = [published_status(vendor) for vendor in choice.vendors]
        answered = [rows.one_of(status, *HAS_ANSWER) for status in statuses]
        accepted = [
            flags & self._accepts(rows, day, text)
            for flags, text in zip(answered, choice.accepted, strict=True)
        ]
        answer_vendor, status_vendor = self._choose(rows, answered, accepted)
        outcome = np.maximum(status_vendor, 0)
        wrong = self._differs(rows, choice.status, statuses, outcome)
        times = [published_answered_at(vendor) for vendor in choice.vendors]
        wrong |= self._differs(rows, choice.answered_at, times, outcome)
        for name, _ in choice.columns:
            of_vendors = [f"{vendor}_{name}" for vendor in choice.vendors]
            wrong |= self._differs(rows, name, of_vendors, answer_vendor)
        named = pa.array(choice.vendors).take(pa.array(answer_vendor, mask=answer_vendor < 0))
        wrong |= digest([rows.decoded(choice.vendor)]) != digest([named])
        counts = {}
        for number, (vendor, status) in enumerate(zip(choice.vendors, statuses, strict=True)):
            asked = ~rows.one_of(status, "skipped", "not_asked")
            refused = answered[number] & ~accepted[number]
            missed = rows.one_of(status, "miss")
            bought = (answer_vendor == number) & rows.one_of(source(vendor), "call")
            flags = (asked, answer_vendor == number, refused, missed, bought)
            counts[vendor] = VendorRows(*(int(flag.sum()) for flag in flags))
        return Chosen(len(rows), self.faults(rows, wrong, self.shown), counts)

    def _choose(
        self, rows: TaskRows, answered: list[Flags], accepted: list[Flags]
    ) -> tuple[Places, Places]:
        """Return by row the number of the vendor whose answer counts, or NOBODY, and of the vendor
        whose status does.
        """
        answer, status = np.full(len(rows), NOBODY), np.full(len(rows), NOBODY)
        names = [published_status(vendor) for vendor in self.choice.vendors]
        forwards, backwards = range(len(names)), range(len(names) - 1, -1, -1)
        # as in jobs/task/rows/choices.py, in the other direction: the weakest rule comes first, and
        # each later rule overwrites it
        for number in forwards:  # the last vendor that was asked
            status[~rows.one_of(names[number], "skipped")] = number
        for number in forwards:  # the last vendor that answered
            answer[answered[number]] = status[answered[number]] = number
        for number in backwards:  # the first vendor that failed
            failed = rows.one_of(names[number], *FAILED, "not_asked")
            answer[failed], status[failed] = NOBODY, number
        for number in backwards:  # the first vendor whose answer was accepted
            answer[accepted[number]] = status[accepted[number]] = number
        return answer, status

    def _accepts(self, rows: TaskRows, day: WrittenDay, text: str) -> Flags:
        """Return the rows for which the SQL of `accept` is true."""
        names = [name for name in rows.names if name.lower() in text.lower()]
        table = pa.table({name: rows.decoded(name) for name in names or rows.names[:1]})
        values = day.evaluate(text, table) if day.evaluate else None
        if values is None:
            raise ValueError(f"accept cannot be evaluated: {text}")
        found: Flags = values.fill_null(False).to_numpy(zero_copy_only=False)
        return found

    def _differs(self, rows: TaskRows, name: str, sources: list[str], chosen: Places) -> Flags:
        """Return the rows whose value is not that of the chosen vendor's column."""
        count, columns = len(rows), [*map(rows.decoded, sources)]
        taken = pa.concat_arrays(columns).take(
            pa.array(np.maximum(chosen, 0) * count + np.arange(count), mask=chosen < 0)
        )
        found: Flags = digest([rows.decoded(name)]) != digest([taken])
        return found

    def finding(self, parts: list[Chosen], day: WrittenDay) -> Finding:
        count = sum(part.rows for part in parts)
        wrong = Faults.together(part.wrong for part in parts)
        figures = {lookup.name: lookup for lookup in (day.metrics.lookups if day.metrics else ())}
        texts = []
        for vendor in self.choice.vendors:
            of_parts = np.array([part.counts[vendor] for part in parts], int).reshape(-1, 5)
            rows = VendorRows(*of_parts.sum(axis=0).tolist())
            text = (
                f"{vendor} {rows.chosen:,} of {rows.asked:,} asked, {rows.refused:,} refused, "
                f"{rows.missed:,} missed"
            )
            billed = figures[vendor].billed if vendor in figures else None
            if billed is not None and rows.bought:
                price = rounded(float(billed.cost) / rows.bought)
                text += f", {price} {billed.currency} per key found"
            elif billed is not None and float(billed.cost):
                text += f", {billed.cost} {billed.currency} and no key found"
            texts.append(text)
        sentence = "; ".join(texts)
        return self.conclude(
            wrong,
            count,
            holds=sentence,
            wrong=f"{counted(wrong.count, 'row')} of {count:,} with another answer than the rule "
            f"gives; {sentence}",
            expected="the answer of the first vendor that was accepted",
        )
