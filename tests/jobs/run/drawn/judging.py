"""Judges what a run wrote, asked and was billed, beside the model."""

import importlib
import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa
from deltalake import DeltaTable

from jobs.commands.planning.plan import plan
from tests.jobs.run.drawn.compared import newest_records
from tests.jobs.run.drawn.declarations import IN_SQL
from tests.jobs.run.drawn.input_files import COLUMNS, TYPES
from tests.jobs.run.drawn.outcomes import key_of, outcome_in, outcome_of, text_of
from tests.jobs.run.drawn.shapes import MORE, in_type
from tests.jobs.run.drawn.shown import rows_of_folders, rows_of_iceberg


class Judge:
    """Compares a run of a night with what the model expects; it notes faults in sentences."""

    def __init__(self, night):
        self.drawn, self.vendor, self.world = night.drawn, night.vendor, night.world
        self.catalog = night.catalog
        self.published, self.table, self.faults = night.published, night.table, []

    def judge_plan(self, run, days):
        """What `plan` says of lookups whose keys are made of the input; returns the faults."""
        found = plan(importlib.import_module("declared.it").it, days)
        for look, reported in zip(self.drawn.looks, found.lookups, strict=True):
            read = [look.when, *(sql for sql, _ in look.keys.values())]
            is_chained = any(sql[1:2] == "_" for sql in read)
            if is_chained or look.waterfall or look.name in self.world.unsure:
                continue
            keys = Counter()  # the rows of the first day that has the key
            for day in days:
                keys = Counter({**self._keys_of(look, day), **keys})
            asked = [key for key in keys if not run.is_free(look, key)]
            calls = len(asked) if look.has_cache else sum(keys[key] for key in asked)
            wanted = len(keys), len(keys) - len(asked), len(asked), calls
            counted = reported.keys, reported.in_ledger, reported.asked, reported.calls
            if counted != wanted:
                self.faults.append(
                    f"plan of {look.name}: keys, stored, asked, calls {counted}, not {wanted}"
                )
            if not look.bills_use and look.kind in ("http", "body", "batch"):
                self._judge_plan_of_cost(look, reported)
        return self.faults

    def _judge_plan_of_cost(self, look, one):
        """Calls in full batches, at the price of today; each key asked anew has one reason."""
        sent = {"item": one.calls, "request": math.ceil(one.calls / look.max_items)}
        cost = sum(Decimal(amount) * sent[unit] for amount, unit in look.prices)
        found = one.requests, Decimal(one.cost or 0), sum(keys for _, keys in one.because)
        if found != (sent["request"], cost, one.asked):
            self.faults.append(
                f"plan of {look.name} ({look.kind}): requests, cost, reasons {found}, not "
                f"{(sent['request'], cost, one.asked)}"
            )

    def _keys_of(self, look, day):
        """The keys that a day asks, each with its rows."""
        rows = [row for row in self.drawn.days[day] if look.holds is None or look.holds(row)]
        return Counter(text_of(values) for row in rows if (values := key_of(look, row)) is not None)

    def judge_runs(self, runs, before):
        """What runs by day published, asked and were billed since `before`; returns the faults."""
        self._judge_days(runs if self.world.unsure else self.published)
        for look in self.drawn.looks:
            self._judge_asked(look, runs.values(), before)
        self._judge_bill(runs, before)
        return self.faults

    def judge_held(self, run, before):
        """What a run that published nothing asked since `before`; returns the faults."""
        for look in self.drawn.looks:
            self._judge_asked(look, [run], before)
        return self.judge_table()

    def judge_table(self):
        """What the table has; returns the faults."""
        if self.published and not self.world.unsure:
            self._judge_days(self.published)
        return self.faults

    # -- rows --------------------------------------------------------------------------------------
    def _judge_days(self, days):
        tables = ("published", "published__audit")
        found, audit = (
            {row["id"]: row for row in DeltaTable(table).to_pyarrow_table().to_pylist()}
            for table in tables
        )
        wanted = {row["id"]: day for day in self.published for row in self.published[day]}
        if {row["id"]: str(row["date"]) for row in found.values()} != wanted:
            self.faults.append(f"the rows {sorted(found)} are published, not {sorted(wanted)}")
            return
        self._judge_columns()
        self._judge_shown(found)
        answers = {column for look in self.drawn.looks for column in columns_of(look)}
        for row in (row for day in days for row in self.published[day]):
            number = row["id"]
            got = found[number]
            changed = {
                name: (got[name], row.get(name))
                for name in {*got} - {"date", *answers}
                if not name.endswith("_answered_at")
                and not same(got[name], in_type(name, row.get(name), self.table.get(name)))
            }
            if changed:
                self.faults.append(f"row {number} of {row.keys()} has {changed}")
            for look in self.drawn.looks:
                self._judge_cell(look, got, row, audit[number])

    def _judge_shown(self, found):
        """That readers of Iceberg or of folders see the table as it is."""
        if not self.drawn.shown:
            return
        rows = rows_of_iceberg(self.catalog) if self.catalog else rows_of_folders()
        there = {row["id"]: row for row in rows}
        if len(there) != len(rows) or there.keys() != found.keys():
            self.faults.append(f"the rows {sorted(row['id'] for row in rows)} are shown")
            return
        for number, row in found.items():
            differ = {
                name: (there[number].get(name), value)
                for name, value in row.items()
                if not same(there[number].get(name), value)
            }
            if differ:
                self.faults.append(f"row {number} is shown with {differ}")

    def _judge_columns(self):
        """The columns of the input, and their types."""
        types = {"id": pa.int64()} | {name: TYPES[kind][0] for name, kind in COLUMNS.items()}
        found = pa.schema(DeltaTable("published").schema().to_arrow())
        kinds = {field.name: field.type for field in found}
        wanted = {"id": types["id"]} | {
            name: MORE[name][place][0] if name in MORE else types[name]
            for name, place in self.table.items()
        }
        got = {name: kinds[name] for name in kinds if name in {*types, *MORE}}
        if got != wanted:
            self.faults.append(f"the columns of the input are {got}, not {wanted}")

    def _judge_cell(self, look, got, wanted, audit):
        status, outcome = audit.get(f"_{look.name}_status"), outcome_in(wanted, look)
        differ = [
            column for column in columns_of(look) if not same(got.get(column), wanted.get(column))
        ]
        if (status or "") == outcome.status and not differ:
            return
        if self.world.unsure and self._may_be(look, status, got, wanted):
            return
        values = key_of(look, wanted)
        mood = values and look.mood(text_of(values))
        self.faults.append(
            f"row {got['id']} at {look.name} ({look.kind}): {status}, expected {outcome.status}; "
            f"{ {column: (got[column], wanted.get(column)) for column in differ} }, because of "
            f"{audit['_' + look.name + '_error']!r}; key {values}, mood {mood}"
        )

    def _may_be(self, look, status, got, wanted):
        """Whether a row may end so where what else was in its batch decides; the model then goes
        on from it.
        """
        values = key_of(look, {**wanted, **got})
        if values is None or status == "skipped" or (look.waterfall and status == "ok"):
            return status in ("skipped", "ok")
        key = text_of(values)
        self.world.unsure.add(look.name)
        self.world.forget(look, {key})
        for epoch in range(self.vendor.epoch + 1) if status == "ok" else ():
            for what in ("answer", "lacks", "wrong", "202"):
                found = outcome_of(look, key, what, epoch)
                shown = {look.column(name): found.values.get(name) for name in look.members}
                if found.status == "ok" and all(same(got[name], shown[name]) for name in shown):
                    self.world.keep(look, key, what, epoch)
                    return True
        return status != "ok"

    # -- calls and money ---------------------------------------------------------------------------
    def _judge_asked(self, look, runs, before):
        vendor, expected = self.vendor, [run.asked[look.name] for run in runs]
        is_renewed = self.drawn.auth.get(look.service, "").startswith("oauth")
        repeats_pages = is_renewed and look.kind == "pages"
        if look.kind in IN_SQL or self.world.unsure or repeats_pages:
            return
        asked = Counter({
            key: count - before.seen[name, key]
            for (name, key), count in vendor.seen.items()
            if name == look.name
        })  # fmt: skip
        keys = sum((calls.keys for calls in expected), Counter())
        differ = {
            key: (asked[key], keys[key], look.mood(key))
            for key in {*asked, *keys}
            if asked[key] != keys[key]
        }
        if differ:
            self.faults.append(f"calls of {look.name} ({look.kind}), expected, moods: {differ}")
        sent = vendor.requests[look.name] - before.requests[look.name]
        requests = sum(calls.requests for calls in expected)
        if look.kind != "batch" and not is_renewed and sent != requests:
            self.faults.append(f"{look.name}: {sent} requests, not {requests}")

    def _judge_bill(self, days, before):
        newest = newest_records()
        of_days = [newest[day].figures.lookups for day in days]
        for look, *parts in zip(self.drawn.looks, *of_days, strict=True):
            billed = self.vendor.bills[look.name] - before.bills.get(look.name, Decimal(0))
            cost = sum((Decimal(part.billed.cost) for part in parts if part.billed), Decimal(0))
            if cost != billed:
                self.faults.append(
                    f"{look.name} ({look.kind}) cost {cost}, and the vendor billed {billed}: "
                    f"{[(part.billed, part.requests) for part in parts]}"
                )
            silent = self.vendor.silent[look.name] - before.silent[look.name]
            unknown = sum(part.requests.unknown_use for part in parts if part.requests)
            if unknown != silent:
                moods = {look.mood(key) for name, key in self.vendor.seen if name == look.name}
                self.faults.append(
                    f"{look.name} ({look.kind}): {unknown} of unknown use, not {silent}; {moods}"
                )


def columns_of(look):
    """The columns of a lookup, or of its waterfall, in the table."""
    name = look.waterfall or look.name
    columns = [f"{name}_status", *map(look.column, look.members)]
    return [*columns, f"{name}_vendor"] if look.waterfall else columns


def same(one, other):
    """Whether a value of a table is the one expected; -0.0 is not 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return type(one) is type(other) and one == other
