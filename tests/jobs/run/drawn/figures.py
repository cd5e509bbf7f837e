"""Judges the figures that users read, beside what the vendor counted and the model expects.

docs/planning.md ("What the figures count") says what each figure counts.
"""

import csv
import datetime as dt
import json
import math
import re
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.commands.costs import list_costs
from jobs.commands.limits import holders_and_pauses
from jobs.limits.store_url import limits_url
from jobs.tables.records import run_records
from tests.jobs.run.drawn.declarations import IN_SQL
from tests.jobs.run.drawn.expected import FAILED, key_of, text_of

# of a lookup in the record of a day, as the model counts them
OF_MODEL = (
    "from_ledger", "shared", "rows_called", "answered", "calls", "throttled", "stored",
)  # fmt: skip
OF_VENDOR = ("throttled", "answered", "item")
LINE = re.compile(
    r"^(\S+)  published +([\d,]+) rows?, ([\d,]+) calls?(?: \(([\d,]+) [a-z ]+\))?, "
    r"([\d,]+) answers? from the ledger(?:, ([\d,]+) dead letters?)?(?:; ([\d.,]+) USD)?;",
    re.MULTILINE,
)
PARTS = 10**9  # of money, in the store of limits


class Figures:
    """Compares the figures of a night so far; it notes faults in sentences."""

    def __init__(self, night):
        self.night, self.drawn, self.vendor = night, night.drawn, night.vendor
        self.world, self.faults = night.world, []
        self.records = newest_records()

    def _same(self, what, got, wanted):
        if got != wanted:
            self.faults.append(f"{what}: {got}, not {wanted}")

    # -- records -----------------------------------------------------------------------------------
    def judge_runs(self, runs, before, printed):
        """The days that ran since `before`; returns the faults."""
        for place, look in enumerate(self.drawn.looks):
            found = {day: self.records[day].figures.lookups[place] for day in runs}
            for day, run in runs.items():
                self._judge_outcomes(look, day, found[day])
                self._judge_counts(look, day, found[day], run.asked[look.name])
            self._judge_requests(look, [*found.values()], before)
            self._judge_units(look, [*found.values()], before)
        for day in runs:
            self._judge_oldest(day)
            figures = self.records[day].figures
            rows = len(self.night.published[day])
            self._same(f"{day}: rows in, out", (figures.rows_in, figures.rows_out), (rows, rows))
            self.night.done["rows"] += rows
            stored = sum(run_of.counts["from_ledger"] for run_of in runs[day].asked.values())
            self.night.done["answers_from_ledger"] += stored
            self.night.done["calls"] += figures.calls
        self._judge_lines(printed, runs)
        return self.faults

    def _judge_outcomes(self, look, day, found):
        rows = self.night.published[day]
        got = {outcome: count for outcome, count in found.outcomes.items() if count}
        if not self.world.unsure:
            wanted = Counter(row[f"{look.name}:outcome"].status for row in rows)
            self._same(f"{day}: outcomes of {look.name} ({look.kind})", got, dict(wanted))
        self._same(f"{day}: rows of {look.name}", sum(got.values()), len(rows))

    def _judge_counts(self, look, day, found, asked):
        what = f"{day}: {look.name} ({look.kind})"
        if self.world.unsure:
            return
        counts = asked.counts
        counts["retried"] = counts["calls"] - counts["rows_called"]
        for name in (*OF_MODEL, "retried"):
            if self._may_try_again(look) and name in ("calls", "throttled", "retried"):
                continue
            self._same(f"{what} {name}", getattr(found, name), counts[name])
        if look.prices:
            self._same(f"{what} keys_from_ledger", found.keys_from_ledger, len(asked.from_ledger))
            self._judge_saved(look, what, found, len(asked.from_ledger))

    def _judge_saved(self, look, what, found, keys):
        """Each key once, at the price of its item, or its request in a full batch."""
        if look.bills_use:
            return
        units = {"item": keys, "request": math.ceil(keys / look.max_items)}
        saved = sum(Decimal(amount) * units[unit] for amount, unit in look.prices)
        self._same(f"{what} saved", Decimal(found.billed.saved), saved)

    def _judge_oldest(self, day):
        table = rows_of("published", day)
        for look, found in zip(self.drawn.looks, self.records[day].figures.lookups, strict=True):
            if look.waterfall:
                continue
            oldest = pc.min(table[f"{look.name}_answered_at"]).as_py()
            shown = oldest and oldest.replace(microsecond=0).isoformat()
            self._same(f"{day}: oldest answer of {look.name}", found.oldest_answer_at, shown)

    def _may_try_again(self, look):
        """Whether calls begin anew by a token that is refused, or in a pause before they leave, as
        second ones and those that wait for their mark.
        """
        is_renewed = self.drawn.auth.get(look.service, "").startswith("oauth")
        is_marked = not (look.idempotent or look.has_header)
        asks_in_pause = look.kind == "coroutine" or look.repair or is_marked
        moods = {mood for one in self.night.beside(look) for mood in one.moods}
        return is_renewed or (asks_in_pause and bool({"throttled", "busy", "over"} & moods))

    def _judge_requests(self, look, parts, before):
        if look.kind in IN_SQL or look.kind == "function":
            return
        counted = [one.requests for one in parts if one.requests]
        since = self.vendor.counts - before.counts
        sent = self.vendor.requests[look.name] - before.requests[look.name]
        wanted = {"sent": sent, "in_doubt": 0, "items": since[look.name, "item"]}
        wanted |= {name: since[look.name, name] for name in ("throttled", "answered")}
        for name, number in wanted.items():
            got = sum(getattr(one, name) for one in counted)
            self._same(f"requests of {look.name} ({look.kind}) {name}", got, number)
        most = sum(sum(one.most_at_once) for one in counted)
        if not {"hangs", "stuck"} & {*look.moods} and self.vendor.most[look.name] > most:
            self.faults.append(
                f"{look.name} had {self.vendor.most[look.name]} requests at once, counted {most}"
            )

    def _judge_units(self, look, parts, before):
        """The vendor's invoice, line by line."""
        since, got = self.vendor.counts - before.counts, Counter()
        for one in parts if look.prices else ():
            got.update({part.unit: part.units for part in one.billed.parts})
        wanted = {unit: since[look.name, unit] for _, unit in look.prices}
        self._same(f"units of {look.name} ({look.kind})", {**got}, wanted)

    def _judge_lines(self, printed, runs):
        lines = {day: numbers for day, *numbers in LINE.findall(printed)}
        for day in runs:
            figures = self.records[day].figures
            numbers = lines.get(day, [])
            got = [Decimal(number.replace(",", "") or 0) for number in numbers]
            cost = sum(figures.cost.values(), Decimal(0))
            cost = Decimal(f"{cost:.{2 if cost >= 1 else 4}f}")
            wanted = [
                figures.rows_out, figures.calls, sum(one.shared for one in figures.lookups),
                sum(one.from_ledger for one in figures.lookups), self._letters(day).total(), cost,
            ]  # fmt: skip
            self._same(f"the line of {day}", got, wanted)

    # -- commands ----------------------------------------------------------------------------------
    def judge_commands(self):
        """What `status`, `show`, `costs`, `dead-letters`, `limits` and `explain` say now."""
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

    def _letters(self, day):
        """The dead letters of a day, by lookup and outcome, as its audit has them."""
        audit = rows_of("published__audit", day)
        found = Counter()
        for look in self.drawn.looks:
            for status in audit[f"_{look.name}_status"].to_pylist():
                policy = look.policies.get("on_miss" if status == "miss" else "on_error")
                policy = "dead_letter" if status == "timeout" else policy
                if status in ("miss", *FAILED) and policy == "dead_letter":
                    found[look.name, status] += 1
        return found

    def _billed(self):
        return sum(self.vendor.bills.values(), Decimal(0))

    def _judge_status(self):
        (table,) = self._read("status", "drawn", "--days", "30", "--package", "declared")["tables"]
        for day in table["days"]:
            name = day["day"]
            if name not in self.night.published:
                continue
            record = self.records[name]
            wanted = {
                "rows": record.figures.rows_out,
                "calls": record.figures.calls, "version": record.published_version,
                "dead_letters": self._letters(name).total(),
            }  # fmt: skip
            self._same(f"status of {name}", {one: day[one] for one in wanted}, wanted)
        for span in ("this_month", "last_24_hours"):
            work = table[span]
            cost = sum((Decimal(str(one)) for one in work["cost"].values()), Decimal(0))
            self._same(f"status, cost of {span}", cost, self._billed())
            if not self.world.unsure:
                got = {name: work[name] for name in ("rows", "answers_from_ledger")}
                wanted = {name: self.night.done[name] for name in got}
                self._same(f"status, {span}", got, wanted)

    def _judge_show(self):
        cost = Decimal(0)
        for day in self.drawn.days:
            if not run_records.load("drawn", day) and not run_records.unwritten("drawn", day):
                continue
            runs = self._read("show", "drawn", day, "--package", "declared")["runs"]
            for run in runs:
                cost += sum(
                    (Decimal(one.split()[0]) for one in run["cost"].split(", ") if one), Decimal(0)
                )
        self._same("the runs of all days cost", cost, self._billed() - self.night.tried.total())

    def _judge_dead_letters(self):
        found = self._read("dead-letters", "drawn", "--package", "declared")
        got = Counter()
        for group in found["groups"]:
            got[group["lookup"], group["status"]] += group["letters"]
        wanted = sum(map(self._letters, self.night.published), Counter())
        self._same("dead letters", (found["letters"], got), (wanted.total(), wanted))

    def _judge_costs(self):
        month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
        costs, units = Counter(), defaultdict(Counter)
        for charge in list_costs(month).by_lookup():
            costs[charge.lookup] += Decimal(charge.billed.cost)
            units[charge.lookup].update({one.unit: one.units for one in charge.billed.parts})
        for look in self.drawn.looks:
            billed = self.vendor.bills[look.name]
            self._same(f"costs of {look.name} ({look.kind})", costs[look.name], billed)
            wanted = {unit: self.vendor.counts[look.name, unit] for _, unit in look.prices}
            got = {unit: units[look.name][unit] for unit in wanted}
            self._same(f"costs, units of {look.name} ({look.kind})", got, wanted)
        code, printed = self.night.command("costs", "--csv", "costs.csv")
        self._same(f"exit status of costs, which printed {printed}", code, 0)
        with Path("costs.csv").open(newline="") as file:
            lines = [Decimal(line["BilledCost"]) for line in csv.DictReader(file)]
        self._same("the lines of costs.csv", sum(lines, Decimal(0)), self._billed())

    def _judge_limits(self):
        """What budgets count as spent."""
        url = limits_url()
        if not url:
            return
        holders = holders_and_pauses(url)[0]
        in_use = (one for one in holders if " per " not in one.limit)  # of rates for their period
        held = [one for one in in_use if one.expires_in is not None]
        if not self.night.has_stopped:  # calls that it cancelled may still be at the service
            self._same("held after a run", held, [])
        for look in self.drawn.looks:
            if look.budget and not self.vendor.silent[look.name]:
                spent = sum(
                    one.holds for one in holders
                    if one.service.startswith(f"http {look.service} at ") and " on " in one.limit
                )  # fmt: skip
                wanted = self.night.budgeted(look)
                is_most = look.kind == "coroutine" and look.bills_use  # where a call failed
                if not (is_most and Decimal(spent) / PARTS > wanted):
                    self._same(
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
        (own,) = [one for one in audits if one["id"] == row["id"]]
        for look, one in zip(self.drawn.looks, found["lookups"], strict=True):
            what = f"explain of row {row['id']} at {look.name} ({look.kind})"
            status = own[f"_{look.name}_status"]
            wanted = {
                "outcome": status, "source": own[f"_{look.name}_source"],
                "attempts": len(own[f"_{look.name}_attempts"] or ()),
            }  # fmt: skip
            self._same(what, {name: one[name] for name in wanted}, wanted)
            if not self.world.unsure and status in ("ok", "miss"):
                key = text_of(key_of(look, row))
                same = [
                    other for other in rows
                    if other[f"{look.name}:outcome"].status == status
                    and text_of(key_of(look, other)) == key
                ]  # fmt: skip
                if look.has_cache:
                    self._same(f"{what}, used by", one["used_by"], len(same) - 1)


def rows_of(table, day):
    day = dt.date.fromisoformat(day)
    return DeltaTable(table).to_pyarrow_table(filters=[("date", "=", day)])


def newest_records():
    """The newest record of each day."""
    found = {}
    for record in sorted(run_records.load("drawn"), key=lambda record: record.order):
        found[record.facts.day] = record
    return found
