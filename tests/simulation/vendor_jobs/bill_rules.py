"""What the ledger and the budgets say that jobs cost: what the vendor bills."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.declare.limits.budgets import PARTS
from jobs.ledger.job_files import NEVER_SENT
from jobs.run.keys.vendor_jobs.job_watch import GIVEN_UP
from tests.simulation import limits_store
from tests.simulation.night_at_work import scheduler
from tests.simulation.vendor_jobs.dialects import DIALECTS
from tests.simulation.vendor_jobs.night import JobsNight
from tests.simulation.vendor_jobs.vendor import ITEM, MOST_TOKENS, TOKEN, JobVendor, VendorJob

if TYPE_CHECKING:
    from tests.simulation.vendor_jobs.rules import JobRules

FORGOTTEN = "forgotten"
LET_GO = (FORGOTTEN, GIVEN_UP)


class BillRules:
    """The judge of bills.

    Attributes:
        budget: Items that all jobs may cost at their most; 0: no budget.
    """

    def __init__(self, rules: "JobRules", night: JobsNight, limits: Path) -> None:
        """limits: The file of the limits over runs."""
        self._rules, self._limits = rules, limits
        self._vendor: JobVendor = rules.vendor
        self.budget = night.budget
        self._most_of_item = ITEM
        if DIALECTS[night.dialect].by_token:
            self._most_of_item += MOST_TOKENS * TOKEN

    def check_spending(self, accepted: Sequence[VendorJob]) -> None:
        """What the vendor has billed, and may still bill for open jobs, is within the budget."""
        bills = [
            sum(job.bill.values()) if job.is_over else len(job.items) * self._most_of_item
            for job in accepted
        ]
        if self.budget and sum(bills) > self.budget * self._most_of_item:
            scheduler().fail(f"{sum(bills)} are spent, of {self.budget} items at their most")

    def check_bills(self) -> None:
        """What the ledger says of each job is what the vendor bills, to the cent."""
        for job in self._vendor.accepted():
            if not self._rules.has_file(job.token):
                scheduler().fail(f"a job without a file: {job.name} {job.token}")
            if why := self._fault_of(job):
                scheduler().fail(why)

    def _fault_of(self, job: VendorJob) -> str:
        """What is wrong with the cost of a job in the ledger; empty if it is right."""
        done, bill = self._rules.done(job.token), sum(job.bill.values(), Decimal(0))
        if done is None or done["state"] == NEVER_SENT:
            return ""
        cost = Decimal(done.get("cost", "0"))
        if done["state"] in LET_GO:
            most = done["items"] * self._most_of_item
            is_right = cost == most
            return "" if is_right else f"{job.name} was let go at {cost}, not at its most, {most}"
        erased = [item for item in job.items if self._rules.was_forgotten(job, item)]
        least = bill - sum((job.bill.get(item, Decimal(0)) for item in erased), Decimal(0))
        # a result of a foreign item may count in place of an erased one that has no result
        most = bill + ITEM * sum(item not in job.bill for item in erased)
        if least <= cost <= most:
            return ""
        return f"{job.name} ({done['state']}) is billed {bill}, the ledger has {cost}"

    def check_budget(self) -> None:
        """The book counts what the ledger has as billed, and open jobs at their most; more only
        where a kill or a fault came between, and never less than the vendor billed. A job that was
        let go counts as billed in the ledger, also if its run was killed before it spent for it.
        """
        if not self.budget:
            return
        (held,) = {
            book.held(name) for book in limits_store.books(self._limits).values()
            for name in {row["limit"] for row in book.rows(0.0)}
        } or {0}  # fmt: skip
        spent = Decimal(held) / PARTS
        invoice = sum((sum(job.bill.values()) for job in self._vendor.accepted()), Decimal(0))
        if spent < invoice and not self._rules.clock_was_set:
            scheduler().fail(f"the budget has {spent} as spent, the vendor billed {invoice}")
        struck = scheduler().world.faults.struck
        tokens = self._rules.intents()
        ends = {token: done for token in tokens if (done := self._rules.done(token)) is not None}
        is_clear = not struck["error of the limits' store"] and not struck["power cut"]
        if not is_clear or len(ends) < len(tokens):
            return
        costs = {token: Decimal(done.get("cost", "0")) for token, done in ends.items()}
        taken = {job.token for job in self._vendor.accepted()}
        unspent = sum(
            costs[token]
            for token, done in ends.items()
            if done["state"] in LET_GO and token not in taken
        )
        most = sum(costs.values())
        if not most - unspent <= spent <= most:
            scheduler().fail(f"the budget has {spent} as spent, the ledger {most}")
