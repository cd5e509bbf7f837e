"""What is estimated of an enrichment's days, as values."""

from dataclasses import dataclass

from jobs.schema.facts import Facts


@dataclass(frozen=True)
class LookupEstimate(Facts):
    """The estimate of a lookup. keys = in_ledger + asked, and asked = the sum of `because`."""

    name: str
    rows: int  # with a key
    keys: int  # distinct keys
    in_ledger: int
    oldest_days: float | None  # age of the oldest answer that would be used
    asked: int
    because: tuple[tuple[str, int], ...]  # reason -> keys
    # a call for each of `asked`; without a cache for each of their rows, without a ledger on each
    # day
    calls: int
    calls_because: str  # why calls exceed `asked`; empty if they do not
    requests: int  # of the calls, with full batches; as many per call as on the last run
    batch_size: int
    # decimal; None: no price is declared, or only answers show the units and few are stored
    cost: str | None
    price: str  # such as "0.0040 USD per item"; empty: no price is declared
    later_price: str  # such as "0.0046 USD per item from 2026-12-01"; empty without a later price
    seconds: float | None  # None: unknown, as no earlier run measured a call
    concurrency: int  # calls in flight
    # if the cost is a forecast from stored answers: its interval, right 95 times in 100
    cost_between: tuple[str, str] | None = None
    sample: int = 0  # the number of these stored answers
    # further calls that a run may make: rows whose key is made of an answer that is not stored
    unknown: int = 0
    expected: int | None = None  # of `unknown`, if as many rows have a key as in the last run
    cost_at_most: str | None = None  # with those calls
    # if the cost is taken from the calls of the last run: their number
    as_last_run: int = 0
    # calls may send more (pages, a coroutine), and no run has shown how many
    requests_are_least: bool = False


@dataclass(frozen=True)
class Rung(Facts):
    """What is expected of a vendor. Calls are of keys without a stored answer."""

    vendor: str
    calls: float
    cost: str | None  # decimal; None without a price per item or request
    fill: float  # share of all rows whose accepted answer is from this vendor
    sample: int  # number of stored answers from which this is forecast


@dataclass(frozen=True)
class WaterfallEstimate(Facts):
    """What is expected of a waterfall's vendors, if the next answers are like the stored ones.

    Attributes:
        name: The waterfall.
        rungs: Its vendors, in order.
        currency: Of the costs; empty without a common one.
        cheapest: Vendors in the order with the lowest cost; empty if that is the declared one, or
            unknown. Any order fills as many rows.
        cheapest_cost: The cost in that order.
    """

    name: str
    rungs: tuple[Rung, ...]
    currency: str = ""
    cheapest: tuple[str, ...] = ()
    cheapest_cost: str = ""


@dataclass(frozen=True)
class Estimate(Facts):
    """The estimate of an enrichment's days; a key of several days counts once."""

    enrichment: str
    days: tuple[str, ...]  # with input
    without_input: tuple[str, ...]
    published: int  # days that are published with the current declaration
    rows: int  # that would be enriched
    ledger: str | None
    lookups: tuple[LookupEstimate, ...]
    # new, changed, expired, gone and kept rows of a table without days
    changes: tuple[tuple[str, int], ...] = ()
    waterfalls: tuple[WaterfallEstimate, ...] = ()  # with enough stored answers
