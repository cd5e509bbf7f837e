"""Checks that readers see the answer of the right vendor of a waterfall."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data_quality.check import Check
from data_quality.findings import Finding, rows
from data_quality.rows.key_expressions import as_plain
from data_quality.rows.run_output import Faults, Flags, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import digest
from jobs.schema.columns import FAILED, HAS_ANSWER, published_status, source
from jobs.schema.records import ChoiceFacts, DeclaredFacts


@dataclass(frozen=True)
class Chosen:
    rows: int
    wrong: Faults  # another answer, status or vendor than the rule gives
    # vendor -> asked, chosen, refused, missed, chosen of those that a call of this run answered
    counts: dict[str, tuple[int, ...]]


class VendorChosen(Check):
    name = "vendor_chosen"
    red_when = (
        "the published answer, status or vendor of a waterfall is not that of its first accepted "
        "answer, by its vendors' statuses in the audit"
    )

    def __init__(self, declared: DeclaredFacts, choice: ChoiceFacts) -> None:
        super().__init__(declared)
        self.choice = choice

    @property
    def full_name(self) -> str:
        return f"{self.choice.name}__{self.name}"

    @property
    def description(self) -> str:
        return f"{self.choice.name}: {self.promise}"

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
        return (*self.shown, *names, *of_vendors, *map(source, self.choice.vendors))

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Chosen:
        choice, count = self.choice, len(rows)
        statuses = [published_status(vendor) for vendor in choice.vendors]
        accepted = [
            rows.one_of(status, *HAS_ANSWER) & self._holds(rows, day, text)
            for status, text in zip(statuses, choice.accepted, strict=True)
        ]
        answer, outcome = np.full(count, -1), np.full(count, -1)
        for place in reversed(range(len(statuses))):  # the strongest rule is applied last
            outcome = np.where(
                rows.one_of(statuses[place], "skipped"), outcome, np.maximum(outcome, place)
            )
        last = np.full(count, -1)
        for place, status in enumerate(statuses):
            last = np.where(rows.one_of(status, *HAS_ANSWER), place, last)
        answer, outcome = last, np.where(last >= 0, last, outcome)
        for place in reversed(range(len(statuses))):
            failed = rows.one_of(statuses[place], *FAILED, "not_asked")
            answer, outcome = np.where(failed, -1, answer), np.where(failed, place, outcome)
        for place in reversed(range(len(statuses))):
            answer = np.where(accepted[place], place, answer)
            outcome = np.where(accepted[place], place, outcome)
        wrong = self._differs(rows, choice.status, statuses, np.maximum(outcome, 0))
        for name, _ in choice.columns:
            of_vendors = [f"{vendor}_{name}" for vendor in choice.vendors]
            wrong |= self._differs(rows, name, of_vendors, answer)
        named = pa.array(choice.vendors).take(pa.array(answer, mask=answer < 0))
        wrong |= digest([as_plain(rows.column(choice.vendor))]) != digest([named])
        counts = {}
        for place, (vendor, status) in enumerate(zip(choice.vendors, statuses, strict=True)):
            asked = ~rows.one_of(status, "skipped")
            refused = rows.one_of(status, *HAS_ANSWER) & ~accepted[place]
            missed = rows.one_of(status, "miss")
            bought = (answer == place) & rows.one_of(source(vendor), "call")
            flags = (asked, answer == place, refused, missed, bought)
            counts[vendor] = tuple(int(flag.sum()) for flag in flags)
        return Chosen(count, self.faults(rows, wrong, self.shown), counts)

    def _holds(self, rows: TaskRows, day: WrittenDay, text: str) -> Flags:
        names = [name for name in rows.names if name.lower() in text.lower()]
        table = pa.table({name: as_plain(rows.column(name)) for name in names or rows.names[:1]})
        values = day.evaluate(text, table) if day.evaluate else None
        if values is None:
            raise ValueError(f"accept cannot be evaluated: {text}")
        found: Flags = values.fill_null(False).to_numpy(zero_copy_only=False)
        return found

    def _differs(self, rows: TaskRows, name: str, sources: list[str], place: np.ndarray) -> Flags:
        count, columns = len(rows), [as_plain(rows.column(source)) for source in sources]
        taken = pa.concat_arrays(columns).take(
            pa.array(np.maximum(place, 0) * count + np.arange(count), mask=place < 0)
        )
        found: Flags = digest([as_plain(rows.column(name))]) != digest([taken])
        return found

    def finding(self, parts: list[Chosen], day: WrittenDay) -> Finding:
        count, wrong = (
            sum(part.rows for part in parts),
            Faults.together(part.wrong for part in parts),
        )
        figures = {lookup.name: lookup for lookup in (day.metrics.lookups if day.metrics else ())}
        texts = []
        for vendor in self.choice.vendors:
            of_parts = np.array([part.counts[vendor] for part in parts]).reshape(-1, 5)
            asked, hit, refused, missed, bought = of_parts.sum(axis=0).tolist()
            text = f"{vendor} {hit:,} of {asked:,} asked, {refused:,} refused, {missed:,} missed"
            billed = figures[vendor].billed if vendor in figures else None
            if billed is not None and bought:
                text += f", {float(billed.cost) / bought:.4g} {billed.currency} per key found"
            elif billed is not None and float(billed.cost):
                text += f", {billed.cost} {billed.currency} and no key found"
            texts.append(text)
        sentence = "; ".join(texts)
        expected = "the answer of the first vendor that was accepted"
        bad = (
            f"{rows(wrong.count)} of {count:,} with another answer than the rule gives; {sentence}"
        )
        return Finding.judged(sentence, bad, wrong.count, count, expected).with_evidence(
            wrong.evidence, self.declared
        )
