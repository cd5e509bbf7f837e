"""Plays drawn declarations: days by the local engine, beside what the model expects of them."""

import contextlib
import datetime as dt
import importlib
import io
import os
import random
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from deltalake import DeltaTable

from jobs.commands.costs import list_costs
from jobs.limits.store_url import LIMITS_URL
from tests.jobs.run.drawn.acts_of_schemas import ActsOfSchemas
from tests.jobs.run.drawn.declarations import IN_SQL
from tests.jobs.run.drawn.drawing import draw
from tests.jobs.run.drawn.functions import VENDOR
from tests.jobs.run.drawn.input_files import write_files
from tests.jobs.run.drawn.outcomes import World, key_of, text_of
from tests.jobs.run.drawn.shown import CATALOG, make_catalog
from tests.jobs.run.drawn.vendors import SECRET, DrawnVendor
from tidegate.__main__ import main

VARIABLES = {
    "DRAWN_KEY": "a-key", "DRAWN_SECRET": SECRET, "DRAWN_TOKEN": "a-token", "DRAWN_USER": "user",
    "DRAWN_QUERY": "k&y", **{f"{CATALOG}{name}": "" for name in ("TYPE", "URI", "WAREHOUSE")},
}  # fmt: skip


@dataclass
class Heard:
    """What the vendor had heard and billed at a moment."""

    seen: Counter
    requests: Counter
    silent: Counter
    bills: dict
    counts: Counter


class Night:
    """The night of a seed, in the current folder.

    Attributes:
        done: Rows, calls and answers of the ledger, of the runs that wrote a day.
        tried: USD by lookup of `tidegate try`, which no budget and no day counts.
        published: Day -> its rows, as the model expects them in the table.
        draws: What is done, and with what.
        faults: What was not as expected, in sentences.
        outputs: What the commands printed.
        ended: Why it ended before its last act: the product refused to take answers away.
    """

    def __init__(self, seed, service):
        self.seed = seed
        self.drawn, self.vendor, self.world = draw(seed), DrawnVendor(service), World()
        self.published, self.faults, self.outputs, self.ended = {}, [], [], ""
        self.has_stopped = False
        self.table = {}  # columns of the input that the table has, with the places of their types
        self.done, self.tried = Counter(), Counter()
        self._url, self.draws = service.url, random.Random(f"acts:{seed}")
        self._draws_of_files = random.Random(f"files:{seed}")
        self.draws_of_figures = random.Random(f"figures:{seed}")
        VENDOR[:] = [self.vendor]
        if any(look.budget for look in self.drawn.looks):
            os.environ.pop(LIMITS_URL, None)
        else:
            os.environ[LIMITS_URL] = "off"
        self.vendor.looks = {look.name: look for look in self.drawn.looks}
        self.vendor.auth = self.drawn.auth
        self.catalog = make_catalog() if "iceberg" in self.drawn.shown else None
        self._write()

    def _write(self):
        Path("declared").mkdir()
        Path("declared/__init__.py").touch()
        for day in self.drawn.days:
            self.write_day(day)
        with contextlib.closing(sqlite3.connect("answers.db")) as base:
            for look in self.drawn.looks:
                if look.kind in IN_SQL:
                    self._fill(base, look)
            base.commit()
        self.declare()

    def write_day(self, day):
        """Write the input of a day, in place of the one before."""
        rows, files = self.drawn.days[day], self.drawn.files
        place, shape = Path(f"raw/date={day}"), self.drawn.shapes[day]
        write_files(self.drawn.form, place, rows, files, self._draws_of_files, shape=shape)

    def declare(self):
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

    def change(self, look, new):
        """Declare a lookup otherwise."""
        self.drawn.looks[self.drawn.looks.index(look)] = self.vendor.looks[look.name] = new
        self.declare()

    def gain(self, look):
        """Declare a further lookup."""
        self.drawn.looks.append(look)
        self.vendor.looks[look.name] = look
        if look.service:
            self.drawn.auth[look.service] = ""
        if look.kind in IN_SQL:
            with contextlib.closing(sqlite3.connect("answers.db")) as base:
                self._fill(base, look)
                base.commit()
        self.declare()

    def columns(self):
        """The names of the columns that the table has."""
        return [field.name for field in DeltaTable("published").schema().fields]

    def beside(self, look):
        """The lookups at its service."""
        return [
            other
            for other in self.drawn.looks
            if other is look or other.service == look.service != ""
        ]

    def budgeted(self, look):
        """What a budget of its service counts, in USD."""
        names = [other.name for other in self.beside(look)]
        return sum(self.vendor.bills[name] - self.tried[name] for name in names)

    def play(self):
        """Play the night, up to its first fault."""
        code, printed = self.command("check", "drawn", "--package", "declared")
        if code:
            self.faults.append(f"check ended with {code}: {printed}")
            return
        acts = ActsOfSchemas(self)
        for act in (self.draws.choice(("run", "days")), *self.drawn.acts):
            if not self.faults and not self.ended:
                self.outputs.append(f"-- {act}\n")
                acts.act(act)
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
        self.faults += self.vendor.faults
        return code, printed.getvalue()

    def heard(self):
        vendor = self.vendor
        vendor.most = Counter()
        return Heard(
            Counter(vendor.seen), Counter(vendor.requests), Counter(vendor.silent),
            dict(vendor.bills), Counter(vendor.counts),
        )  # fmt: skip
