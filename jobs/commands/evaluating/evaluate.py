"""`eval`: asks variants of a lookup for the same rows, and compares their answers and costs."""

import datetime as dt
import importlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import Flags, readable_values
from jobs.commands.evaluating.sampled_rows import Labels, identities, read_labels, sample_rows
from jobs.commands.frames.enrich_frame import AskedRows, ask_rows, check_rows
from jobs.declare.answers.answer_json import load
from jobs.declare.answers.usage import UsageReader
from jobs.declare.chains import with_lookups_read
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import cost_of, in_force
from jobs.declare.waterfall import with_variant
from jobs.errors import DeclarationError
from jobs.ledger.answers import as_answers
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import asked_texts, masked_json
from jobs.ledger.scan import records_of
from jobs.run.plan.preflight import preflight
from jobs.schema import columns as schema
from jobs.schema.facts import Facts


@dataclass(frozen=True)
class Variant(Facts):
    """What a variant answered, and what that cost."""

    name: str
    outcomes: dict[str, int]
    as_labelled: dict[str, int]  # column -> rows whose answer is the label; empty without labels
    all_as_labelled: int | None  # rows; None without labels
    calls: int  # rows that called
    paid: str  # by this evaluation, as "0.0123 USD"; empty without a price
    cost_of_1000: str  # of answers, called or stored; empty if unknown
    p50_ms: float | None  # of the calls
    p99_ms: float | None


@dataclass(frozen=True)
class Evaluation(Facts):
    """Variants of a lookup beside each other, on the same rows."""

    enrichment: str
    lookup: str
    day: str
    rows: int
    matched_by: tuple[str, ...]  # the columns that identify a row
    columns: tuple[str, ...]  # that are compared
    variants: tuple[Variant, ...]
    agree: dict[str, int]  # column -> rows with equal answers of both variants; empty for one
    all_agree: int | None
    # rows that differ between the variants, else from their label: their identity, and by column
    # the answer of each variant and the label
    differing: tuple[dict[str, Any], ...]


def evaluate(
    enrichment: Enrichment,
    variants: Sequence[tuple[str, Lookup]],
    day: str,
    *,
    sample: int,
    against: str | None,
    report: Callable[[str, dict[str, Any]], None],
    show_personal: bool = False,
) -> Evaluation:
    """Ask each variant for the same rows, within the declared limits; their answers are stored.

    Args:
        enrichment: The enrichment.
        variants: Their names, and lookups that take the place of the lookup of the same name.
        day: The day of the input.
        sample: The most rows.
        against: A Parquet file with the right answers; None without labels.
        report: Receives the name of a variant and an event of its progress.
        show_personal: Whether identities and answers of rows may be shown if they are personal.

    Raises:
        DeclarationError: Something does not fit; nothing was called.
        RunStopped: A service is down or denies access, or a budget is used up.
    """
    if enrichment.ledger is None:
        raise DeclarationError(
            f"{enrichment.name} has no ledger, which keeps what an evaluation pays for; declare it."
        )
    _, lookup = variants[0]
    labels = None if against is None else read_labels(against, enrichment, lookup)
    rows = sample_rows(preflight(enrichment, day), sample, labels)
    declared = [_declared_with(enrichment, variant) for _, variant in variants]
    for candidate in declared:
        check_rows(rows, candidate)
    sides = [
        _ask(changed, name, variant, rows, report)
        for changed, (name, variant) in zip(declared, variants, strict=True)
    ]
    of_both = [{column.name for column in variant.columns} for _, variant in variants]
    columns = tuple(
        column.name for column in lookup.columns if all(column.name in each for each in of_both)
    )
    by = tuple(enrichment.input.row_id)
    compared = _Comparison(columns, [side.answers(columns) for side in sides], labels, rows, by)
    personal = (side.enrichment.personal_columns for side in sides if not show_personal)
    hidden = frozenset[str]().union(*personal)
    return Evaluation(
        enrichment.name, lookup.name, day, rows.num_rows, by, columns,
        tuple(
            side.facts(compared.as_labelled(place), compared.all_as_labelled(place))
            for place, side in enumerate(sides)
        ),
        compared.agree(), compared.all_agree(), tuple(compared.differing(hidden)),
    )  # fmt: skip


def find_variant(enrichment: Enrichment, reference: str, module: str) -> Lookup:
    """Return the lookup of a reference, module:name, or a name in the enrichment's module.

    Raises:
        DeclarationError: The reference names no lookup, or a lookup of another name.
    """
    place, _, name = reference.rpartition(":")
    try:
        found = getattr(importlib.import_module(place or module), name, None)
    except ImportError as error:
        raise DeclarationError(f"--with {reference}: {place or module}: {error}.") from error
    known = [lookup.name for lookup in enrichment.lookups]
    if not isinstance(found, Lookup):
        raise DeclarationError(
            f"--with {reference}: {place or module} has no lookup {name!r}; declare a variant "
            "there, as label_short = dataclasses.replace(label, body=...)."
        )
    if found.name not in known:
        raise DeclarationError(
            f"--with {reference}: its name is {found.name!r}; a variant has the name of the lookup "
            f"that it stands for: {', '.join(known)}."
        )
    return found


@dataclass(frozen=True)
class _Side:
    name: str
    lookup: Lookup
    enrichment: Enrichment
    asked: AskedRows

    def answers(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return outcome and answer of each row."""
        rows, lookup = self.asked.rows, self.lookup
        written = {
            column.name: own.name
            for column, own in zip(lookup.columns, lookup.written, strict=True)
        }
        names = (schema.status(lookup.name), *(written[name] for name in columns))
        return list(zip(*[readable_values(rows[name]) for name in names], strict=True))

    def facts(self, as_labelled: dict[str, int], all_as_labelled: int | None) -> Variant:
        name, rows = self.lookup.name, self.asked.rows
        called = pc.list_value_length(rows[schema.attempts(name)]).to_numpy() > 0
        latencies = rows[schema.latency_ms(name)].to_numpy()[called]
        latencies = latencies[~np.isnan(latencies)]
        p50, p99 = np.percentile(latencies, [50, 99]) if len(latencies) else (None, None)
        facts = self.lookup.facts()
        currency = facts.prices[0].currency if facts.prices else ""
        paid, calls = self.asked.costs.get(name, Decimal(0)), int(called.sum())
        stored = self._stored_costs(called)
        return Variant(
            self.name,
            dict(Counter(rows[schema.status(name)].to_pylist()).most_common()),
            as_labelled,
            all_as_labelled,
            calls,
            f"{paid:f} {currency}" if currency else "",
            f"{1000 * (paid + sum(stored)) / (calls + len(stored)):.4f} {currency}"
            if currency and calls + len(stored)
            else "",
            p50,
            p99,
        )

    def _stored_costs(self, called: Flags) -> list[Decimal]:
        """Return what the stored answers cost at the prices of today, in full batches.

        The cost of an answer includes that of the answer that it repaired.

        Args:
            called: Which rows made a call; the keys of the others have stored answers.
        """
        folder, lookup = declared_folder(self.enrichment, self.lookup), self.lookup
        texts = asked_texts(
            self.asked.rows[schema.key(lookup.name)].combine_chunks(),
            hidden=self.enrichment.has_personal_key(lookup),
        )
        assert folder is not None
        asked = {text for text, is_called in zip(texts, called, strict=True) if is_called}
        wanted = [text for text in {*texts} - asked if text is not None]
        prices = in_force(lookup.prices, dt.datetime.now(dt.UTC).date().isoformat())
        usage, costs = UsageReader(lookup.bill), dict[tuple[str, str], Decimal]()
        for answer in as_answers(records_of(folder, wanted)):  # oldest first
            used = usage.read(load(answer.response)) if answer.response else None
            if answer.outcome == "ok" and used is not None:
                costs[answer.key, answer.run_id] = (
                    costs.pop((answer.key, answer.run_id), Decimal(0))
                    + cost_of(prices, {**used, "item": 1})
                    + cost_of(prices, {"request": 1}) / lookup.batch_size
                )
        return [*{key: cost for (key, _), cost in costs.items()}.values()]


def _declared_with(enrichment: Enrichment, variant: Lookup) -> Enrichment:
    """Return the enrichment with the variant, and of other lookups only those that it reads."""
    declared = replace(enrichment, lookups=with_variant(enrichment.lookups, variant), budget=())
    place = [lookup.name for lookup in declared.lookups].index(variant.name)
    lookups = with_lookups_read(declared.lookups, place)
    # a budget is refused where nothing has a price
    budget = enrichment.budget if any(lookup.prices for lookup in lookups) else ()
    return replace(declared, lookups=lookups, budget=budget)


def _ask(
    declared: Enrichment,
    name: str,
    variant: Lookup,
    rows: pa.Table,
    report: Callable[[str, dict[str, Any]], None],
) -> _Side:
    audit = [column(variant.name) for column in (
        schema.status, schema.attempts, schema.latency_ms, schema.key,
    )]  # fmt: skip
    (lookup,) = (candidate for candidate in declared.lookups if candidate.name == variant.name)
    if lookup.choice is not None:  # readers do not see a vendor's columns
        audit += [column.name for column in lookup.written]
    asked = ask_rows(rows, declared, audit, lambda event: report(name, event))
    return _Side(name, lookup, declared, asked)


@dataclass(frozen=True)
class _Comparison:
    """The answers of one or two variants, row by row."""

    columns: tuple[str, ...]
    sides: Sequence[Sequence[tuple[Any, ...]]]  # of each variant: outcome and answer of each row
    labels: Labels | None
    rows: pa.Table
    by: tuple[str, ...]

    def _labels(self) -> Iterator[dict[str, Any]]:
        """Yield the label of each row."""
        assert self.labels is not None
        for row in identities(self.rows, self.labels.by):
            yield self.labels.answers[row]

    def _is_labelled(self, place: int) -> Iterator[dict[str, bool]]:
        """Yield by column whether the answer of a variant is the label."""
        for (outcome, *answer), label in zip(self.sides[place], self._labels(), strict=True):
            given = dict(zip(self.columns, answer, strict=True))
            yield {
                name: outcome == "ok" and given[name] == right
                for name, right in label.items()
                if name in given
            }

    def as_labelled(self, place: int) -> dict[str, int]:
        """Return by column in how many rows the variant's answer is the label."""
        found: Counter[str] = Counter()
        for row in self._is_labelled(place) if self.labels is not None else ():
            found.update(row)
        return dict(found)

    def all_as_labelled(self, place: int) -> int | None:
        """Return in how many rows all labelled columns are right."""
        if self.labels is None:
            return None
        return sum(all(row.values()) for row in self._is_labelled(place))

    def _pairs(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        yield from zip(*self.sides, strict=True) if len(self.sides) == 2 else ()

    def agree(self) -> dict[str, int]:
        """Return by column in how many rows both variants give an answer, and the same."""
        return {
            name: sum(
                one[0] == other[0] == "ok" and one[place] == other[place]
                for one, other in self._pairs()
            )
            for place, name in enumerate(self.columns, 1)
            if len(self.sides) == 2
        }

    def all_agree(self) -> int | None:
        """Return in how many rows both variants end alike."""
        return sum(one == other for one, other in self._pairs()) if len(self.sides) == 2 else None

    def differing(self, hidden: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows that differ, with the columns that do."""
        labels = [{}] * self.rows.num_rows if self.labels is None else list(self._labels())
        names = identities(self.rows, self.by) if self.by else [()] * self.rows.num_rows
        for place, (row, label) in enumerate(zip(names, labels, strict=True)):
            ends = [
                dict(zip(("outcome", *self.columns), side[place], strict=True))
                for side in self.sides
            ]
            others = ends[1:] or [label]
            columns = [
                name
                for name in ("outcome", *self.columns)
                if any(name in other and other[name] != ends[0][name] for other in others)
            ]
            if columns:
                identity = dict(zip(self.by, row, strict=True))

                def shown(name: str, values: dict[str, Any]) -> Any:
                    return masked_json(name, values[name], hidden)

                yield {
                    "row": {name: shown(name, identity) for name in self.by},
                    "answers": {name: [shown(name, end) for end in ends] for name in columns},
                    "label": {name: shown(name, label) for name in columns if name in label},
                }
