"""Plays drawn declarations: days by the local engine, beside what the model expects of them."""

import contextlib
import datetime as dt
import importlib
import io
import random
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq

from jobs.commands.costs import list_costs
from tests.jobs.run.drawn.declarations import BY_PATHS, IN_SQL, draw, ttl_of
from tests.jobs.run.drawn.expected import (
    FAILED,
    PASSING,
    RAW,
    THROTTLED,
    Run,
    World,
    key_of,
    status_of,
    text_of,
)
from tests.jobs.run.drawn.functions import VENDOR
from tests.jobs.run.drawn.judging import Judge
from tests.jobs.run.drawn.natures import MEMBERS, reaction
from tests.jobs.run.drawn.vendors import SECRET, DrawnVendor
from tidegate.__main__ import main

DAY = "2026-01-01"
VARIABLES = {
    "DRAWN_KEY": "a-key", "DRAWN_SECRET": SECRET, "DRAWN_TOKEN": "a-token", "DRAWN_USER": "user",
    "DRAWN_QUERY": "k&y",
}  # fmt: skip
CHANGES = ("price", "version", "judges", "required", "column", "error ttl")
STOPPED = 3  # exit status


@dataclass
class Heard:
    """What the vendor had heard and billed at a moment."""

    seen: Counter
    requests: Counter
    silent: Counter
    bills: dict


class Night:
    """The night of a seed, in the current folder.

    Attributes:
        faults: What was not as expected, in sentences.
        outputs: What the commands printed.
        ended: Why it ended before its last act: the product refused to take answers away.
    """

    def __init__(self, seed, service):
        self.drawn, self.vendor, self.world = draw(seed), DrawnVendor(service), World()
        self.faults, self.outputs, self.ended = [], [], ""
        self._url, self._draws = service.url, random.Random(f"acts:{seed}")
        self._rows_now = []
        VENDOR[:] = [self.vendor]
        self.vendor.looks = {look.name: look for look in self.drawn.looks}
        self.vendor.auth = self.drawn.auth
        self._write()

    def _write(self):
        Path("declared").mkdir()
        Path("declared/__init__.py").touch()
        folder = Path(f"raw/date={DAY}")
        folder.mkdir(parents=True)
        table = self.drawn.table
        size = -(-table.num_rows // self.drawn.files)
        for number in range(self.drawn.files):
            pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet")
        with contextlib.closing(sqlite3.connect("answers.db")) as base:
            for look in self.drawn.looks:
                if look.kind in IN_SQL:
                    self._fill(base, look)
            base.commit()
        self._declare()

    def _declare(self):
        Path("declared/it.py").write_text(self.drawn.text(self._url))
        for name in ("declared", "declared.it"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    def _fill(self, base, look):
        """Make the table that a lookup asks."""
        kinds = {"text": "TEXT", "number": "INTEGER"}
        keys = [f"{name} {kinds[kind]}" for name, (_, kind) in look.keys.items()]
        columns = ", ".join([*keys, f"{look.column('v')} TEXT", look.column("n")])
        base.execute(f"CREATE TABLE of_{look.name} ({columns})")
        found = [values for row in self.drawn.rows if (values := key_of(look, row)) is not None]
        for key, values in {text_of(values): values for values in found}.items():
            mood, truths = look.mood(key), look.truths(key, 0)
            number = "many" if mood == "misfit" else truths["n"].value
            row = [*values, truths["v"].value, number]
            places = ", ".join("?" * len(row))
            for _ in range({"missing": 0, "two": 2}.get(mood, 1)):
                base.execute(f"INSERT INTO of_{look.name} VALUES ({places})", row)

    # -- commands ----------------------------------------------------------------------------------
    def play(self):
        """Play the night, up to its first fault."""
        code, printed = self.command("check", "drawn", "--package", "declared")
        if code:
            self.faults.append(f"check ended with {code}: {printed}")
            return
        for act in ("run", *self.drawn.acts):
            if not self.faults and not self.ended:
                self.outputs.append(f"-- {act}\n")
                self._act(act)
        month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
        costs = sum(list_costs(month).totals().values(), Decimal(0))
        billed = sum(self.vendor.bills.values(), Decimal(0))
        if costs != billed:
            self.faults.append(f"costs are {costs}, and the vendor billed {billed}")

    def command(self, *arguments):
        """The exit status of a command, and what it printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main([*arguments])
        self.outputs.append(f"$ tidegate {' '.join(arguments)}\n{printed.getvalue()}")
        return code, printed.getvalue()

    def heard(self):
        vendor = self.vendor
        return Heard(
            Counter(vendor.seen), Counter(vendor.requests), Counter(vendor.silent),
            dict(vendor.bills),
        )  # fmt: skip

    # -- acts --------------------------------------------------------------------------------------
    def _act(self, name):
        self.vendor.epoch += 1
        look = self._draws.choice(self.drawn.looks)
        if name in CHANGES:
            self._change(name, look)
            name = "run" if name == "version" or self._draws.random() < 0.5 else "remap"
        getattr(self, f"_{name}")(look)

    def _change(self, name, look):
        """Declare a lookup otherwise."""
        changed = {}
        if name == "version":
            changed["version"] = look.version + 1
        elif name == "price":
            changed["prices"] = tuple((f"{2 * Decimal(one)}", unit) for one, unit in look.prices)
        elif name == "judges" and look.kind in BY_PATHS:
            changed["judges"] = not look.judges
        elif name == "required" and look.kind in ("http", "body", "batch"):
            changed["required"] = () if look.required else ("n",)
        elif name == "error ttl":
            changed["error_ttl"] = not look.error_ttl
            ttl = ttl_of(miss=look.miss_ttl, error=not look.error_ttl)
            changed["fields"] = look.fields | {"ttl": ttl}
        elif name == "column" and look.kind in BY_PATHS and not look.waterfall:
            new = self._draws.choice([*MEMBERS])
            changed["members"] = tuple(dict.fromkeys((*look.members, new)))
        new = replace(look, **changed)
        self.drawn.looks[self.drawn.looks.index(look)] = self.vendor.looks[look.name] = new
        self._declare()

    def _expected(self, **facts):
        return Run(self.world, self.drawn.looks, self.vendor.epoch, **facts)

    def _run(self, _look):
        Judge(self, self._expected()).judge_plan(DAY)
        self._judged(("run", "drawn", "--day", DAY), self._expected())

    def _remap(self, _look):
        run = self._expected(ignores_ttl=True, may_call=False)
        self._judged(("remap", "drawn", "--from", DAY), run, may_fail=True)

    def _replay(self, _look):
        letters = 0
        for row in self._rows_now:
            for look in self.drawn.looks:
                status, values = row[f"{look.name}:outcome"].status, key_of(look, row)
                policy = look.policies["on_miss" if status == "miss" else "on_error"]
                if status in ("miss", *FAILED) and policy == "dead_letter" and values is not None:
                    letters += 1
                    self._forget(look, text_of(values))
        if letters:
            run = self._expected(ignores_ttl=True)
            self._judged(("replay", "drawn", "--day", DAY), run, may_fail=True)

    def _forget(self, look, of):
        self.world.forget(look, lambda key, kept: key == of and kept.what != "mark")

    def _refresh(self, look):
        outcome = self._draws.choice(("ok", "miss"))

        def is_meant(key, kept):
            raw = "ok" if kept.what in RAW else status_of(look, key, kept.what)
            return raw == outcome

        if not self.world.forget(look, is_meant):
            return
        where = ("--where", f"stored.outcome = '{outcome}'", "--run")
        run = self._expected(ignores_ttl=True)
        self._judged(("refresh", look.name, *where), run, may_fail=bool(self.world.unsure))

    def _try(self, _look):
        if all(look.idempotent for look in self.drawn.looks):  # others are refused
            self._unjudged("try", "drawn", "--rows", "3", "--day", DAY)

    def _capped(self, _look):
        many, run = self._draws.randint(0, 12), ("run", "drawn", "--day", DAY)
        if self._draws.random() < 0.5 or not any(look.prices for look in self.drawn.looks):
            self._unjudged(*run, "--max-calls", f"{many}")
        else:
            cap = Decimal("0.004") * many
            self._unjudged(*run, "--max-cost", f"{cap} USD", cap=cap)

    # -- what becomes of them ----------------------------------------------------------------------
    def _judged(self, command, run, *, may_fail=False):
        before = self.heard()
        code, printed = self.command(*command, "--package", "declared")
        self.faults += self.vendor.faults
        if code:
            self.ended = printed
            if not may_fail:
                self.faults.append(f"{command} ended with {code}: {printed}")
            return
        if command[0] == "refresh" and self.world.unsure and "published " not in printed:
            return  # the ledger had none
        self._rows_now = run.rows(self.drawn.rows)
        self.faults += Judge(self, run).judge_run(self._rows_now, before)
        self.world.seen = Counter(self.vendor.seen)

    def _unjudged(self, *command, cap=None):
        """A command that asks some keys; which, the vendor has heard."""
        before = self.heard()
        code, printed = self.command(*command, "--package", "declared")
        self.faults += self.vendor.faults
        if code not in ((0, STOPPED) if command[0] == "run" else (0, 1, STOPPED)):
            self.faults.append(f"{command} ended with {code}: {printed}")
        spent = sum(self.vendor.bills.values()) - sum(before.bills.values())
        is_exact = all(look.kind not in ("pages", "batch") for look in self.drawn.looks)
        if cap is not None and spent > cap and is_exact:
            self.faults.append(f"{command} cost {spent}")
        for look in self.drawn.looks:
            if look.kind in IN_SQL or look.error_ttl:  # nobody heard of all that it stored
                self.world.unsure.add(look.name)
            for (name, key), count in self.vendor.seen.items():
                if name == look.name and count > before.seen[name, key]:
                    self._take(look, key, count, count - before.seen[name, key])
        self.world.seen = Counter(self.vendor.seen)

    def _take(self, look, key, count, calls):
        """Keep what a key's last request brought, of so many in all and calls of the command."""
        what = reaction(look.mood(key), count - 1)
        is_open = what in THROTTLED or (what in PASSING and calls <= look.retries)
        if look.kind == "batch" or (look.repair and status_of(look, key, what) == "error"):
            self.world.unsure.add(look.name)
        if is_open and not look.idempotent:
            self.world.keep(look, key, "500", self.vendor.epoch)
        elif not is_open:
            self.world.keep(look, key, what, self.vendor.epoch)
