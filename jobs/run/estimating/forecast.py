"""Forecasts what calls cost whose use only answers report, from a sample of stored answers."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.answers.answer_json import load
from jobs.declare.answers.usage import UsageReader
from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import cost_of
from jobs.ledger.generations import COMPACTED, Contents, read_contents
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder
from jobs.ledger.stored_request import other_versions
from jobs.schema.records import PriceFacts

SAMPLE = 2_000  # answers
FEWEST = 20  # answers from which a cost is forecast
DEVIATIONS = 1.96  # of a normal distribution, on each side of 95 %
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """A cost that lies within its interval 95 times of 100.

    Attributes:
        cost, low, high: In the currency of the prices.
        sample: The number of answers that it is made from.
    """

    cost: float
    low: float
    high: float
    sample: int


def forecast_cost(
    lookup: Lookup,
    folder: LedgerFolder,
    prices: Sequence[PriceFacts],
    texts: pa.ChunkedArray,
    calls: pa.ChunkedArray,
) -> Forecast | None:
    """Return what calls for these keys cost; None with too few stored answers.

    Args:
        lookup: A lookup with `bill`.
        folder: Its ledger; answers of its earlier requests count where it has too few.
        prices: The prices in force.
        texts: The keys, as the ledger has them.
        calls: The number of calls for each.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    for sampled in (folder, *other_versions(folder)):
        lengths, costs = _read_sample(sampled, UsageReader(lookup.bill), prices)
        if len(costs) >= FEWEST:
            wanted = pc.binary_length(texts).to_numpy().astype(np.float64)
            return predict_total(lengths, costs, wanted, calls.to_numpy().astype(np.float64))
    return None


def _read_sample(
    folder: LedgerFolder, usage: UsageReader, prices: Sequence[PriceFacts]
) -> tuple[Numbers, Numbers]:
    """Return the lengths of keys and the costs of what a run stored for each."""
    found: dict[tuple[str, str], float] = {}  # by key and run: a run pays for its repairs too
    for table in read_latest(folder, SAMPLE):
        columns = [table[name].to_pylist() for name in ("key", "run_id", "response")]
        for key, run, response in zip(*columns, strict=True):
            used = None if response is None else usage.read(load(response.encode()))
            if used is not None:
                units = {**used, "request": 1, "item": 1}
                cost = found.get((key, run), 0.0)
                found[key, run] = cost + float(cost_of(prices, units))
    costs = [(len(key.encode()), cost) for (key, _), cost in found.items()]
    sample = np.array(costs[:SAMPLE], np.float64).reshape(-1, 2)
    return sample[:, 0], sample[:, 1]


def read_latest(folder: LedgerFolder, most: int) -> list[pa.Table]:
    """Return stored records, the latest parts first, then what is compacted.

    Args:
        folder: The ledger's folder.
        most: No further file is read after so many records.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    return read_contents(folder, lambda contents: list(_read_tables(folder, contents, most)))


def _read_tables(folder: LedgerFolder, contents: Contents, most: int) -> Iterator[pa.Table]:
    start, rows = len(f"{folder.path}/{PARTS}/"), 0
    stored_at = {info.path[start:]: info.mtime_ns or 0 for info in folder.files(PARTS)}
    for part in sorted(contents.parts, key=lambda part: stored_at.get(part, 0), reverse=True):
        if rows < most:
            yield (table := folder.read([part]))
            rows += table.num_rows
    for file in contents.files:
        if rows < most:
            with suppress(ForeignFile), folder.open(f"{COMPACTED}/{file.name}") as stored:
                yield (table := stored.read_row_group(stored.num_row_groups // 2))
                rows += table.num_rows


def predict_total(lengths: Numbers, costs: Numbers, wanted: Numbers, calls: Numbers) -> Forecast:
    """Return the total cost of calls, by a line through the costs over the lengths of keys.

    Args:
        lengths: Of the keys of the sample, in bytes.
        costs: Of their answers.
        wanted: The lengths of the keys that are called.
        calls: The number of calls for each of them.
    """
    known = np.column_stack([np.ones_like(lengths), lengths])
    if np.ptp(lengths) == 0:  # a hidden key is a digest
        known = known[:, :1]
    line, *_ = np.linalg.lstsq(known, costs, rcond=None)
    spread = float(np.sum((costs - known @ line) ** 2)) / max(1, len(costs) - known.shape[1])
    total = np.array([calls.sum(), calls @ wanted])[: known.shape[1]]
    cost = float(total @ line)
    inverse = np.linalg.pinv(known.T @ known)
    variance = spread * (float(calls @ calls) + float(total @ inverse @ total))
    half = DEVIATIONS * float(np.sqrt(variance))
    return Forecast(cost, max(0.0, cost - half), cost + half, len(costs))
