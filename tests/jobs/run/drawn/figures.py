"""Judges the figures that users read, beside what the vendor counted and the model expects.

docs/planning.md ("What the figures count") says what each figure counts.
"""

import math
import re
from collections import Counter
from decimal import Decimal

import pyarrow.compute as pc

from orchestration.dagster.assets.metadata import figures_metadata
from tests.jobs.run.drawn.compared import Compared, rows_of
from tests.jobs.run.drawn.declarations import IN_SQL

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


class Figures(Compared):
    """Compares the records of runs, and what a run printed."""

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
            self._judge_plots(day)
            figures = self.records[day].figures
            rows = len(self.night.published[day])
            self.same(f"{day}: rows in, out", (figures.rows_in, figures.rows_out), (rows, rows))
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
            self.same(f"{day}: outcomes of {look.name} ({look.kind})", got, dict(wanted))
        self.same(f"{day}: rows of {look.name}", sum(got.values()), len(rows))

    def _judge_counts(self, look, day, found, asked):
        what = f"{day}: {look.name} ({look.kind})"
        if self.world.unsure:
            return
        counts = asked.counts
        counts["retried"] = counts["calls"] - counts["rows_called"]
        for name in (*OF_MODEL, "retried"):
            if self._may_try_again(look) and name in ("calls", "throttled", "retried"):
                continue
            self.same(f"{what} {name}", getattr(found, name), counts[name])
        if look.has_cache:
            self.same(f"{what} keys_called", found.keys_called, len(asked.called) or None)
        has_keys = look.kind in ("batch", *IN_SQL)  # a query of many keys may be asked key by key
        if found.requests and not has_keys and not self._may_try_again(look):
            got = found.requests.retried, found.requests.repaired
            wanted = counts["retried"] + counts["repaired"], counts["repaired"]
            self.same(f"{what} requests retried, repaired", got, wanted)
        if look.prices:
            self.same(f"{what} keys_from_ledger", found.keys_from_ledger, len(asked.from_ledger))
            self._judge_saved(look, what, found, len(asked.from_ledger))

    def _judge_saved(self, look, what, found, keys):
        """Each key once, at the price of its item, or its request in a full batch."""
        if look.bills_use:
            return
        units = {"item": keys, "request": math.ceil(keys / look.max_items)}
        saved = sum(Decimal(amount) * units[unit] for amount, unit in look.prices)
        self.same(f"{what} saved", Decimal(found.billed.saved), saved)

    def _judge_oldest(self, day):
        table = rows_of("published", day)
        for look, found in zip(self.drawn.looks, self.records[day].figures.lookups, strict=True):
            if look.waterfall:
                continue
            oldest = pc.min(table[f"{look.name}_answered_at"]).as_py()
            shown = oldest and oldest.replace(microsecond=0).isoformat()
            self.same(f"{day}: oldest answer of {look.name}", found.oldest_answer_at, shown)

    def _judge_plots(self, day):
        """What Dagster plots of a day."""
        plots, audit = figures_metadata(self.records[day]), rows_of("published__audit", day)
        got = {"rows_in": plots["rows_in"], "dead_letters": plots["dead_letters"]}
        wanted = {"rows_in": audit.num_rows, "dead_letters": self.letters(day).total()}
        for look in self.drawn.looks:
            sources = Counter(audit[f"_{look.name}_source"].to_pylist())
            wanted[f"{look.name}/answers_from_ledger"] = sources["ledger"]
            statuses = Counter(audit[f"_{look.name}_status"].to_pylist())
            wanted |= {f"{look.name}/rows_{status}": many for status, many in statuses.items()}
        got |= {name: plots.get(name) for name in wanted}
        self.same(f"{day} in Dagster", got, wanted)

    def _may_try_again(self, look):
        """Whether calls begin anew by a token that is refused, or in a pause before they leave, as
        second ones and those that wait for their mark.
        """
        is_renewed = self.drawn.auth.get(look.service, "").startswith("oauth")
        is_marked = not (look.idempotent or look.has_header)
        asks_in_pause = look.kind == "coroutine" or look.repair or is_marked
        moods = {mood for other in self.night.beside(look) for mood in other.moods}
        return is_renewed or (asks_in_pause and bool({"throttled", "busy", "over"} & moods))

    def _judge_requests(self, look, parts, before):
        if look.kind in IN_SQL or look.kind == "function":
            return
        counted = [part.requests for part in parts if part.requests]
        since = self.vendor.counts - before.counts
        sent = self.vendor.requests[look.name] - before.requests[look.name]
        wanted = {"sent": sent, "in_doubt": 0, "items": since[look.name, "item"]}
        wanted |= {name: since[look.name, name] for name in ("throttled", "answered")}
        for name, number in wanted.items():
            got = sum(getattr(counts, name) for counts in counted)
            self.same(f"requests of {look.name} ({look.kind}) {name}", got, number)
        most = sum(sum(counts.most_at_once) for counts in counted)
        if (
            not {"hangs", "stuck", "dozes", "slow"} & {*look.moods}
            and self.vendor.most[look.name] > most
        ):
            self.faults.append(
                f"{look.name} had {self.vendor.most[look.name]} requests at once, counted {most}"
            )

    def _judge_units(self, look, parts, before):
        """The vendor's invoice, line by line."""
        since, got, lost = self.vendor.counts - before.counts, Counter(), Counter()
        for lookup in parts if look.prices else ():
            got.update({part.unit: part.units for part in lookup.billed.parts})
            lost.update({part.unit: part.lost for part in lookup.billed.parts})
        wanted = {unit: since[look.name, unit] for _, unit in look.prices}
        self.same(f"units of {look.name} ({look.kind})", {**got}, wanted)
        if "request" in wanted:
            unanswered = wanted["request"] - since[look.name, "answered"]
            self.same(f"requests of {look.name} ({look.kind}) lost", lost["request"], unanswered)
        if "item" in wanted:
            unanswered = wanted["item"] - sum(part.answered for part in parts)
            self.same(f"items of {look.name} ({look.kind}) lost", lost["item"], unanswered)

    def _judge_lines(self, printed, runs):
        lines = {day: numbers for day, *numbers in LINE.findall(printed)}
        for day in runs:
            figures = self.records[day].figures
            numbers = lines.get(day, [])
            got = [Decimal(number.replace(",", "") or 0) for number in numbers]
            cost = sum(figures.cost.values(), Decimal(0))
            cost = Decimal(f"{cost:.{'2f' if cost >= 1 else '4g'}}")
            wanted = [
                figures.rows_out, figures.calls, sum(lookup.shared for lookup in figures.lookups),
                sum(lookup.from_ledger for lookup in figures.lookups),
                self.letters(day).total(), cost,
            ]  # fmt: skip
            self.same(f"the line of {day}", got, wanted)
