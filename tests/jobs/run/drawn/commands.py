"""Judges what commands say of a drawn night so far, beside the vendor, the tables and the model."""

import csv
import datetime as dt
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

from jobs.commands.costs import list_costs
from jobs.commands.limits import holders_and_pauses
from jobs.limits.store_url import limits_url
from jobs.tables.records import run_records
from tests.jobs.run.drawn.compared import Compared, rows_of
from tests.jobs.run.drawn.outcomes import key_of, outcome_in, text_of

PARTS = 10**9  # of money, in the store of limits


class Commands(Compared):
    """Compares what `status`, `show`, `costs`, `dead-letters`, `limits` and `explain` say now."""

    def judge(self):
        """Returns the faults."""
        self._judge_costs()
        self._judge_limits()
        self._judge_show()
        if self.night.published and not self.night.ended:
            self._judge_status()
            self._judge_dead_letters()
            self._judge_explain()
        return self.faults

    def _read(self, *command):
        code, printed = self.night.command(*command, "--json")
        if code not in (0, 1):
            self.faults.append(f"{command} ended with {code}: {printed}")
        return json.loads(printed)

    def _billed(self):
        return sum(self.vendor.bills.values(), Decimal(0))

    def _judge_status(self):
        (table,) = self._read("status", "drawn", "--days", "30", "--package", "declared")["tables"]
        for day in table["days"]:
            name = day["day"]
            if name not in self.night.published:
                continue
            record = self.records[name]
            written = (run.published_version for run in run_records.load("drawn", name))
            wanted = {
                "rows": record.figures.rows_out, "calls": record.figures.calls,
                "version": max((number for number in written if number is not None), default=None),
                "dead_letters": self.letters(name).total(),
            }  # fmt: skip
            self.same(f"status of {name}", {name: day[name] for name in wanted}, wanted)
        for span in ("this_month", "last_24_hours"):
            work = table[span]
            cost = sum((Decimal(str(cost)) for cost in work["cost"].values()), Decimal(0))
            self.same(f"status, cost of {span}", cost, self._billed())
            if not self.world.unsure:
                got = {name: work[name] for name in ("rows", "answers_from_ledger")}
                wanted = {name: self.night.done[name] for name in got}
                self.same(f"status, {span}", got, wanted)

    def _judge_show(self):
        cost = Decimal(0)
        for day in self.drawn.days:
            if not run_records.load("drawn", day) and not run_records.unwritten("drawn", day):
                continue
            runs = self._read("show", "drawn", day, "--package", "declared")["runs"]
            for run in runs:
                cost += sum(
                    (Decimal(cost.split()[0]) for cost in run["cost"].split(", ") if cost),
                    Decimal(0),
                )
        self.same("the runs of all days cost", cost, self._billed() - self.night.tried.total())

    def _judge_dead_letters(self):
        found = self._read("dead-letters", "drawn", "--package", "declared")
        got = Counter()
        for group in found["groups"]:
            got[group["lookup"], group["status"]] += group["letters"]
        wanted = sum(map(self.letters, self.night.published), Counter())
        self.same("dead letters", (found["letters"], got), (wanted.total(), wanted))

    def _judge_costs(self):
        month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
        costs, units = Counter(), defaultdict(Counter)
        for charge in list_costs(month).by_lookup():
            costs[charge.lookup] += Decimal(charge.billed.cost)
            units[charge.lookup].update({part.unit: part.units for part in charge.billed.parts})
        for look in self.drawn.looks:
            billed = self.vendor.bills[look.name]
            self.same(f"costs of {look.name} ({look.kind})", costs[look.name], billed)
            wanted = {unit: self.vendor.counts[look.name, unit] for _, unit in look.prices}
            got = {unit: units[look.name][unit] for unit in wanted}
            self.same(f"costs, units of {look.name} ({look.kind})", got, wanted)
        code, printed = self.night.command("costs", "--csv", "costs.csv")
        self.same(f"exit status of costs, which printed {printed}", code, 0)
        with Path("costs.csv").open(newline="") as file:
            lines = [Decimal(line["BilledCost"]) for line in csv.DictReader(file)]
        self.same("the lines of costs.csv", sum(lines, Decimal(0)), self._billed())

    def _judge_limits(self):
        """What budgets count as spent."""
        url = limits_url()
        if not url:
            return
        holders = holders_and_pauses(url)[0]
        # a rate is held for its period
        in_use = (holder for holder in holders if " per " not in holder.limit)
        held = [answer for answer in in_use if answer.expires_in is not None]
        if not self.night.has_stopped:  # calls that it cancelled may still be at the service
            self.same("held after a run", held, [])
        for look in self.drawn.looks:
            if look.budget and not self.vendor.silent[look.name]:
                spent = sum(
                    holder.holds for holder in holders
                    if holder.service.startswith(f"http {look.service} at ")
                    and " on " in holder.limit
                )  # fmt: skip
                wanted = self.night.budgeted(look)
                is_most = look.kind == "coroutine" and look.bills_use  # where a call failed
                if not (is_most and Decimal(spent) / PARTS > wanted):
                    self.same(
                        f"spent at {look.service} ({look.kind})", Decimal(spent) / PARTS, wanted
                    )

    def _judge_explain(self):
        draws = self.night.draws_of_figures
        day = draws.choice(sorted(self.night.published))
        rows = self.night.published[day]
        if not rows:
            return
        row = draws.choice(rows)
        command = ("explain", "drawn", "--row", f"id={row['id']}", "--package", "declared")
        found = self._read(*command, "--day", day)
        audit = rows_of("published__audit", day)
        audits = audit.to_pylist()
        (own,) = [row_audit for row_audit in audits if row_audit["id"] == row["id"]]
        of_row = [look for look in self.drawn.looks if outcome_in(row, look).status]
        for look, shown in zip(of_row, found["lookups"], strict=True):
            what = f"explain of row {row['id']} at {look.name} ({look.kind})"
            status = own[f"_{look.name}_status"]
            wanted = {
                "outcome": status, "source": own[f"_{look.name}_source"],
                "attempts": len(own[f"_{look.name}_attempts"] or ()),
            }  # fmt: skip
            self.same(what, {name: shown[name] for name in wanted}, wanted)
            if not self.world.unsure and status in ("ok", "miss"):
                key = text_of(key_of(look, row))
                same = [
                    other for other in rows
                    if outcome_in(other, look).status == status
                    and text_of(key_of(look, other)) == key
                ]  # fmt: skip
                if look.has_cache:
                    self.same(f"{what}, used by", shown["used_by"], len(same) - 1)
