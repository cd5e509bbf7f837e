"""Forecasts what the vendors of a waterfall are asked, cost and fill, from stored answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.clients.registry import client_for
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import cost_of, in_force, reported_units
from jobs.input.day import InputDay
from jobs.input.keys.arrow_expressions import evaluate
from jobs.ledger.answers import as_answers, only_answers
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.run.estimating.figures import Rung, WaterfallEstimate
from jobs.run.estimating.forecast import FEWEST, read_latest
from jobs.run.estimating.planned_keys import key_rows, part_names
from jobs.run.keys.judged_answers import needing_no_call
from jobs.run.keys.key_texts import texts_or_null
from jobs.schema.records import ChoiceFacts
from jobs.task.rows.ledger_hits import stored_columns

SAMPLE = 20_000  # stored answers of a vendor
MOST_ORDERED = 5  # vendors: every order of them is priced
NO_KEY = -1
Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Vendor:
    """A vendor with its keys in the days' rows.

    Attributes:
        lookup: The lookup.
        codes: By row: the number of its key, or NO_KEY.
        leaves_open: By number of a key: the probability that its answer is not accepted; the last
            is that of NO_KEY.
        is_known: By number of a key: whether its answer is stored, likewise.
        sample: The stored answers from which the probability of the other keys is made.
        price: Of a call; None if unknown.
    """

    lookup: Lookup
    codes: Codes
    leaves_open: Numbers
    is_known: npt.NDArray[np.bool_]
    sample: int
    price: Decimal | None


def forecast_rungs(
    enrichment: Enrichment,
    days: Sequence[InputDay],
    plans: Sequence[LedgerPlan | None],
    now_us: int,
) -> tuple[WaterfallEstimate, ...]:
    """Return a forecast for each waterfall that has enough to make one; `plans` are by lookup.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    forecast = _Forecast(enrichment, days, plans, now_us)
    found = map(forecast.of, enrichment.choices)
    return tuple(rung for rung in found if rung is not None)


@dataclass(frozen=True)
class _Forecast:
    enrichment: Enrichment
    days: Sequence[InputDay]
    plans: Sequence[LedgerPlan | None]
    now_us: int

    def of(self, choice: ChoiceFacts) -> WaterfallEstimate | None:
        """Return what is expected; None if vendors have no or few stored answers, or keys that
        Arrow cannot make of the input alone.
        """
        found = [self._vendor(choice, place) for place in range(len(choice.vendors))]
        vendors = [vendor for vendor in found if vendor is not None]
        if len(vendors) < len(found):
            return None
        rows = sum(day.rows for day in self.days)
        rungs, cost = _expect(vendors, rows)
        currencies = {price.currency for vendor in vendors for price in vendor.lookup.prices}
        estimated = WaterfallEstimate(
            choice.name, rungs, currencies.pop() if len(currencies) == 1 else ""
        )
        if cost is None or not estimated.currency or len(vendors) > MOST_ORDERED:
            return estimated
        priced = [(_expect(order, rows)[1] or cost, order) for order in permutations(vendors)]
        least, order = min(priced, key=lambda pair: pair[0])
        if least >= cost * Decimal("0.99"):
            return estimated
        names = tuple(vendor.lookup.name for vendor in order)
        return WaterfallEstimate(choice.name, rungs, estimated.currency, names, f"{least:.2f}")

    def _vendor(self, choice: ChoiceFacts, place: int) -> _Vendor | None:
        names = [lookup.name for lookup in self.enrichment.lookups]
        number = names.index(choice.vendors[place])
        lookup, plan = self.enrichment.lookups[number], self.plans[number]
        texts = None if plan is None else self._texts(lookup)
        if texts is None or plan is None:
            return None
        folder, latest = plan.open_folder(), dict[str, bool]()
        for table in read_latest(folder, SAMPLE):
            latest = _accepts(lookup, choice.accepted[place], table) | latest
        if len(latest) < FEWEST:
            return None
        encoded = texts.dictionary_encode()
        selected = select(folder, encoded.dictionary, now_us=self.now_us, ttl=plan.ttl).answers
        answers, _ = needing_no_call(lookup, plan, selected, self.now_us)
        known = _accepts(lookup, choice.accepted[place], answers)
        share = 1 - sum(latest.values()) / len(latest)
        keys = encoded.dictionary.to_pylist()
        today = datetime.fromtimestamp(self.now_us / 1e6, UTC).date().isoformat()
        prices = in_force(lookup.prices, today)
        price = None
        if prices and not reported_units(lookup.prices):
            full = {"item": lookup.batch_size, "request": 1}
            price = Decimal(cost_of(prices, full)) / lookup.batch_size
        return _Vendor(
            lookup,
            encoded.indices.fill_null(NO_KEY).to_numpy(zero_copy_only=False).astype(np.int64),
            np.array([float(not known[key]) if key in known else share for key in keys] + [1.0]),
            np.array([key in known for key in keys] + [True]),
            len(latest),
            price,
        )

    def _texts(self, lookup: Lookup) -> pa.Array | None:
        """Return the vendor's key in each row, null without a key; None if only Spark knows it."""
        hidden, parts, found = self.enrichment.has_personal_key(lookup), part_names(lookup), []
        for day in self.days:
            rows = key_rows(day, lookup.as_written)
            if rows is None:
                return None
            found += [texts_or_null(batch, parts, hidden=hidden) for batch in rows.to_batches()]
        return pa.chunked_array(found, pa.string()).combine_chunks()


def _accepts(lookup: Lookup, accepted: str, answers: pa.Table) -> dict[str, bool]:
    """Return by key whether the waterfall accepts a stored answer; a miss is not accepted."""
    answers = only_answers(answers)
    caller = client_for(lookup, 1)
    rows = [stored_columns(caller, stored) for stored in as_answers(answers)]
    written = [(column.name, column.arrow_type) for column in lookup.written]
    table = pa.table(
        [
            pa.array([None if row is None else row[n] for row in rows], kind)
            for n, (_, kind) in enumerate(written)
        ],
        names=[name for name, _ in written],
    )
    holds = evaluate(accepted, table)
    assert holds is not None  # check_chained has compiled it
    flags = [
        row is not None and bool(flag) for row, flag in zip(rows, holds.to_pylist(), strict=True)
    ]
    return dict(zip(answers["key"].to_pylist(), flags, strict=True))


def _expect(vendors: Sequence[_Vendor], rows: int) -> tuple[tuple[Rung, ...], Decimal | None]:
    """Return what is expected of vendors in this order, and their cost; None if it is unknown.

    Rows with the same keys share their answers, and all other answers are independent.
    """
    keys, weight = np.unique(
        np.column_stack([vendor.codes for vendor in vendors]), axis=0, return_counts=True
    )
    turn, rungs, cost = np.ones(len(keys)), list[Rung](), Decimal(0)
    is_priced = all(vendor.price is not None for vendor in vendors)
    for place, vendor in enumerate(vendors):
        codes = keys[:, place]
        # rows that differ only in the keys of later vendors come to their turn together
        _, first = np.unique(keys[:, : place + 1], axis=0, return_index=True)
        first = first[codes[first] != NO_KEY]
        never = np.ones(len(vendor.is_known))
        np.multiply.at(never, codes[first], 1 - turn[first])
        calls = float((1 - never)[~vendor.is_known].sum())
        leaves = vendor.leaves_open[codes]
        fill = float((weight * turn * (1 - leaves)).sum()) / max(1, rows)
        turn *= leaves
        price = None if vendor.price is None else vendor.price * Decimal(calls)
        shown = None if price is None else f"{price:.2f}"
        rungs.append(Rung(vendor.lookup.name, calls, shown, fill, vendor.sample))
        cost += price or 0
    return tuple(rungs), cost if is_priced else None
