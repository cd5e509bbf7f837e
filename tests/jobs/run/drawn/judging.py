"""Judges what a run wrote, asked and was billed, beside the model."""

import importlib
import math
from collections import Counter
from decimal import Decimal

from deltalake import DeltaTable

from jobs.commands.planning.plan import plan
from jobs.tables.records import run_records
from tests.jobs.run.drawn.declarations import IN_SQL
from tests.jobs.run.drawn.expected import key_of, outcome_of, text_of


class Judge:
    """Compares a run of a night with what the model expects; it notes faults in sentences."""

    def __init__(self, night, run):
        self.drawn, self.vendor, self.world = night.drawn, night.vendor, night.world
        self.run, self.faults = run, night.faults

    def judge_plan(self, day):
        """What `plan` says of lookups whose keys are made of the input."""
        found = plan(importlib.import_module("declared.it").it, [day])
        for look, one in zip(self.drawn.looks, found.lookups, strict=True):
            read = [look.when, *(sql for sql, _ in look.keys.values())]
            is_chained = any(sql[1:2] == "_" for sql in read)
            if is_chained or look.waterfall or look.name in self.world.unsure:
                continue
            keys = Counter()
            for row in self.drawn.rows:
                values = key_of(look, row)
                if values is not None and (look.holds is None or look.holds(row)):
                    keys[text_of(values)] += 1
            asked = [key for key in keys if not self.run.is_free(look, key)]
            calls = len(asked) if look.has_cache else sum(keys[key] for key in asked)
            wanted = len(keys), len(keys) - len(asked), len(asked), calls
            counted = one.keys, one.in_ledger, one.asked, one.calls
            if counted != wanted:
                self.faults.append(
                    f"plan of {look.name}: keys, stored, asked, calls {counted}, not {wanted}"
                )

    def judge_run(self, rows, before):
        """What a run published, asked and was billed since `before`; returns the faults."""
        faults, self.faults = self.faults, []
        self._judge_table(rows)
        for look in self.drawn.looks:
            self._judge_asked(look, before)
        self._judge_bill(before)
        found, self.faults = self.faults, faults
        return found

    # -- rows --------------------------------------------------------------------------------------
    def _judge_table(self, rows):
        found = DeltaTable("published").to_pyarrow_table().to_pylist()
        if Counter(row["id"] for row in found) != Counter(row["id"] for row in rows):
            self.faults.append(f"the rows {sorted(row['id'] for row in found)} are published")
            return
        by_id = {row["id"]: row for row in found}
        audit = DeltaTable("published__audit").to_pyarrow_table().to_pylist()
        audit = {row["id"]: row for row in audit}
        for row, wanted in zip(self.drawn.rows, rows, strict=True):
            got = by_id[row["id"]]
            changed = {name: got[name] for name, value in row.items() if not same(got[name], value)}
            if changed:
                self.faults.append(f"row {row} has {changed}")
            for look in self.drawn.looks:
                self._judge_cell(look, got, wanted, audit[row["id"]])

    def _judge_cell(self, look, got, wanted, audit):
        status, outcome = audit[f"_{look.name}_status"], wanted[f"{look.name}:outcome"]
        name = look.waterfall or look.name
        columns = [f"{name}_status", *map(look.column, look.members)]
        columns += [f"{name}_vendor"] if look.waterfall else []
        differ = [one for one in columns if not same(got[one], wanted[one])]
        if status == outcome.status and not differ:
            return
        if self.world.unsure and self._may_be(look, status, got, wanted):
            return
        values = key_of(look, wanted)
        mood = values and look.mood(text_of(values))
        self.faults.append(
            f"row {got['id']} at {look.name} ({look.kind}): {status}, expected {outcome.status}; "
            f"{ {one: (got[one], wanted[one]) for one in differ} }, because of "
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
        self.world.forget(look, lambda one, _kept: one == key)
        for epoch in range(self.vendor.epoch + 1) if status == "ok" else ():
            for what in ("answer", "lacks", "wrong", "202"):
                found = outcome_of(look, key, what, epoch)
                shown = {look.column(name): found.values.get(name) for name in look.members}
                if found.status == "ok" and all(same(got[name], shown[name]) for name in shown):
                    self.world.keep(look, key, what, epoch)
                    return True
        return status != "ok"

    # -- calls and money ---------------------------------------------------------------------------
    def _judge_asked(self, look, before):
        vendor, expected = self.vendor, self.run.asked[look.name]
        is_renewed = self.drawn.auth.get(look.service, "").startswith("oauth")
        repeats_pages = is_renewed and look.kind == "pages"
        if look.kind in IN_SQL or self.world.unsure or repeats_pages:
            return
        asked = Counter({
            key: count - before.seen[name, key]
            for (name, key), count in vendor.seen.items()
            if name == look.name
        })  # fmt: skip
        differ = {
            key: (asked[key], expected.keys[key], look.mood(key))
            for key in {*asked, *expected.keys}
            if asked[key] != expected.keys[key]
        }
        if differ:
            self.faults.append(f"calls of {look.name} ({look.kind}), expected, moods: {differ}")
        sent = vendor.requests[look.name] - before.requests[look.name]
        if look.kind != "batch" and not is_renewed and sent != expected.requests:
            self.faults.append(f"{look.name}: {sent} requests, not {expected.requests}")

    def _judge_bill(self, before):
        record = max(run_records.load("drawn"), key=lambda record: record.order)
        for look, one in zip(self.drawn.looks, record.figures.lookups, strict=True):
            billed = self.vendor.bills[look.name] - before.bills.get(look.name, Decimal(0))
            cost = Decimal(one.billed.cost) if one.billed else Decimal(0)
            if cost != billed:
                self.faults.append(
                    f"{look.name} ({look.kind}) cost {cost}, and the vendor billed {billed}: "
                    f"{one.billed} {one.requests}"
                )
            silent = self.vendor.silent[look.name] - before.silent[look.name]
            unknown = one.requests.unknown_use if one.requests else 0
            if unknown != silent:
                moods = {look.mood(key) for name, key in self.vendor.seen if name == look.name}
                self.faults.append(
                    f"{look.name} ({look.kind}): {unknown} of unknown use, not {silent}; {moods}"
                )


def same(one, other):
    """Whether a value of a table is the one expected; -0.0 is not 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or (one == other and math.copysign(1, one) == math.copysign(1, other))
    return type(one) is type(other) and one == other
