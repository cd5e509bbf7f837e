"""The options of a run about calls and stored answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.declare.enrichment import Enrichment
from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import read_money
from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.plan import LedgerPlan
from jobs.storage.urls import absolute


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run about calls and stored answers.

    Attributes:
        max_calls: Attempts over all lookups, after which the run stops and can continue later; with
            0 it stops where a key is unknown; None for no cap.
        max_cost: A cap on their cost, such as "5 USD".
        cap_left: What earlier runs of the command left of the cap, in its units; None at first.
        may_call: Without it nothing is called, and a key that the ledger does not know leaves as
            not_asked.
        ignore_ttl: Use an answer whatever its age, but never an error (replay, remap).
        only: Lookup -> its keys, in the ledger's form, that are called although `may_call` is
            False.
        has_record: Whether the record of the run is saved.
    """

    max_calls: int | None = None
    max_cost: str | None = None
    cap_left: float | None = None
    may_call: bool = True
    ignore_ttl: bool = False
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_record: bool = True

    def __post_init__(self) -> None:
        if self.max_calls is not None and self.max_calls < 0:
            raise DeclarationError(f"max-calls is {self.max_calls}; it must be 0 or more.")
        if self.max_cost is not None:
            read_money(self.max_cost, "max-cost")
            if self.max_calls is not None:
                raise DeclarationError("max-calls and max-cost are both given; a run has one cap.")

    @property
    def calls(self) -> bool:
        """Whether a call may be made."""
        return self.max_calls != 0 and (self.may_call or bool(self.only))


def plan_ledger(
    enrichment: Enrichment, lookup: Lookup, run_id: str, rules: RunOptions
) -> LedgerPlan | None:
    """Return how a run uses the ledger of a lookup; None for an enrichment without a ledger."""
    declared = enrichment.ledger
    if declared is None:
        return None
    return LedgerPlan(
        root=absolute(declared.path),
        lookup=lookup.name,
        fingerprint=request_fingerprint(lookup),
        run_id=run_id,
        ttl=replace(FOR_EVER, stores_errors=lookup.ttl.keeps_errors)
        if rules.ignore_ttl
        else lookup.ttl,
        flush_rows=declared.flush_rows,
        flush_seconds=declared.flush_seconds,
        hidden=enrichment.has_personal_key(lookup),
        idempotent=lookup.repeatable,
    )
