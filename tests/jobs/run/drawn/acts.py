"""What is done with a drawn declaration: commands, each beside what the model expects of it."""

import copy
import csv
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tests.jobs.run.drawn.commands import Commands
from tests.jobs.run.drawn.declarations import BY_PATHS, IN_SQL, ttl_of
from tests.jobs.run.drawn.expected import Run
from tests.jobs.run.drawn.figures import Figures
from tests.jobs.run.drawn.input_files import COLUMNS
from tests.jobs.run.drawn.judging import Judge
from tests.jobs.run.drawn.looks import OF_NUMBER
from tests.jobs.run.drawn.money import most_of_call
from tests.jobs.run.drawn.natures import MEMBERS, canonical, on, reaction
from tests.jobs.run.drawn.outcomes import (
    FAILED,
    PASSING,
    RAW,
    THROTTLED,
    key_of,
    outcome_in,
    status_of,
    text_of,
)

CHANGES = (
    "price", "version", "judges", "required", "column", "fewer", "error ttl", "miss ttl", "budget",
    "when",
)  # fmt: skip
STOPPED = 3  # exit status


class Acts:
    """The acts of a night."""

    def __init__(self, night):
        self._night, self._drawn, self._world = night, night.drawn, night.world
        self._vendor, self._draws, self._all_days = night.vendor, night.draws, [*night.drawn.days]

    def act(self, name):
        self._vendor.epoch += 1
        look = self._draws.choice(self._drawn.looks)
        if name in CHANGES:
            self._change(name, look)
            name = "run" if name == "version" or self._draws.random() < 0.5 else "remap"
        getattr(self, f"_{name}")(look)
        if not self._night.faults:
            self._night.faults += Commands(self._night).judge()

    def _change(self, name, look):
        changed = {}
        if name == "version":
            changed["version"] = look.version + 1
        elif name == "price":
            changed["prices"] = tuple(
                (f"{2 * Decimal(amount)}", unit) for amount, unit in look.prices
            )
            if 0 < look.budget < 2 * most_of_call(look):
                changed["budget"] = 2 * look.budget
        elif name == "budget":
            changed["budget"] = 20 * look.budget
        elif name == "judges" and look.kind in BY_PATHS:
            changed["judges"] = not look.judges
        elif name == "required" and look.kind in ("http", "body", "batch"):
            changed["required"] = () if look.required else ("n",)
        elif name in ("error ttl", "miss ttl"):
            ttls = {"miss": look.miss_ttl, "error": look.error_ttl}
            ttls[name.split()[0]] ^= True
            changed |= {f"{outcome}_ttl": is_kept for outcome, is_kept in ttls.items()}
            changed["fields"] = look.fields | {"ttl": ttl_of(**ttls)}
        elif name == "when" and not look.waterfall and not self._lacks("number"):
            changed["when"], changed["holds"] = ("", None) if look.when else OF_NUMBER
        elif name == "fewer" and not look.waterfall:
            others = [member for member in look.members if member not in ("v", "n", "items")]
            gone = self._draws.choice([*others, ""])
            changed["members"] = tuple(member for member in look.members if member != gone)
        elif name == "column" and look.kind in BY_PATHS and not look.waterfall:
            new = self._draws.choice([*MEMBERS])
            changed["members"] = tuple(dict.fromkeys((*look.members, new)))
        for changed_look in self._night.beside(look) if name in ("price", "budget") else [look]:
            self._night.change(changed_look, replace(changed_look, **changed))

    def _lacks(self, *columns):
        """Whether the input of a day lacks one of the columns."""
        return any(shape.lacks & {*columns} for shape in self._drawn.shapes.values())

    # -- acts --------------------------------------------------------------------------------------
    def _run(self, _look):
        day = self._draws.choice(self._all_days)
        self._judge_plan([day])
        self._judged(("run", "drawn", "--day", day), [day])

    def _days(self, _look):
        days = self._all_days
        self._judge_plan(days)
        self._judged(("run", "drawn", "--from", days[0], "--to", days[-1]), days)

    def _repair(self, _look):
        """A day's input is corrected, and the day runs again."""
        day = self._draws.choice(self._all_days)
        rows = self._drawn.days[day]
        number = self._draws.randrange(len(rows))
        if len(rows) > 1 and self._draws.random() < 0.5:
            del rows[number]
        else:
            other = self._draws.choice(self._drawn.rows)
            row = other | {"id": rows[number]["id"]}
            rows[number] = self._drawn.shapes[day].row(row, self._draws)
        self._night.write_day(day)
        self._judged(("run", "drawn", "--day", day), [day])

    def _judge_plan(self, days):
        run = Run(self._world, self._drawn.looks, self._vendor.epoch)
        self._night.faults += Judge(self._night).judge_plan(run, days)

    def _remap(self, _look):
        first = self._draws.choice(self._all_days)
        published = self._night.published
        days = [day for day in sorted(published) if day >= first and published[day]]
        if days:
            facts = {"ignores_ttl": True, "may_call": False}
            self._judged(("remap", "drawn", "--from", first), days, may_fail=True, **facts)

    def _replay(self, _look):
        if not self._night.published:  # a budget stopped the first run
            return
        day, letters = self._draws.choice(sorted(self._night.published)), 0
        for row in self._night.published[day]:
            for look in self._drawn.looks:
                status = outcome_in(row, look).status
                policy = look.policies.get(on(status))
                is_letter = status in ("miss", *FAILED) and policy == "dead_letter"
                if is_letter and (values := key_of(look, row)) is not None:
                    letters += 1
                    self._expire(look, text_of(values))
        if letters:
            command = ("replay", "drawn", "--day", day)
            self._judged(command, [day], may_fail=True, ignores_ttl=True)

    def _expire(self, look, of):
        if look.idempotent:  # a replay repeats no other call
            self._world.forget(look, {of})

    def _refresh(self, look):
        outcome = self._draws.choice(("ok", "miss"))

        def is_meant(key, kept):
            raw = "ok" if kept.what in RAW else status_of(look, key, kept.what)
            return raw == outcome

        keys = self._world.keys(look, is_meant)
        days = [day for day in sorted(self._night.published) if self._has(day, look, keys)]
        if days:
            self._world.forget(look, keys)
            where = ("--where", f"stored.outcome = '{outcome}'", "--run")
            is_unsure = bool(self._world.unsure)
            self._judged(("refresh", look.name, *where), days, may_fail=is_unsure, ignores_ttl=True)

    def _has(self, day, look, keys):
        """Whether a published day has a row with any of the keys."""
        return any(self._is_of(row, look, keys) for row in self._night.published[day])

    def _is_of(self, row, look, keys):
        if outcome_in(row, look).status in ("", "skipped"):
            return False
        values = key_of(look, row)
        return values is not None and text_of(values) in keys

    def _forget(self, look):
        """Some keys are forgotten; rows with them leave the table until their day runs again."""
        rows = [row for rows in self._night.published.values() for row in rows]
        rows = [row for row in rows if outcome_in(row, look).status]
        made = {text_of(values): values for row in rows if (values := key_of(look, row))}
        meant = self._draws.sample(sorted(made), min(len(made), self._draws.randint(1, 3)))
        if not meant:
            return
        with Path("keys.csv").open("w", newline="") as file:
            written = [[*look.keys], *(map(canonical, made[key]) for key in meant)]
            csv.writer(file).writerows(written)
        command = ("forget", look.name, "--key-file", "keys.csv", "--package", "declared")
        code, printed = self._night.command(*command)
        if code:
            self._night.faults.append(f"{command} ended with {code}: {printed}")
        for place in [place for place in self._world.kept if place[0] == look.name]:
            if place[2] in meant:
                del self._world.kept[place]
        for day, of_day in self._night.published.items():
            left = [row for row in of_day if not self._is_of(row, look, meant)]
            self._night.published[day] = left
        self._world.unsure |= self._forgotten_with(look)
        self._night.faults += Judge(self._night).judge_table()

    def _forgotten_with(self, look):
        """The lookups whose keys are made of a forgotten answer, or of what it decided, and the
        later vendors of its waterfall.
        """
        found, decided = set(), (f"{look.name}_",)
        for other in self._drawn.looks[self._drawn.looks.index(look) + 1 :]:
            is_vendor = other.waterfall == look.waterfall != ""
            if is_vendor or any(sql.startswith(decided) for sql, _ in other.keys.values()):
                found.add(other.name)
            if other.name in found or other.when.startswith(decided):
                decided += (f"{other.name}_",)
        return found

    def _try(self, _look):
        if all(look.idempotent for look in self._drawn.looks):  # others are refused
            day = self._draws.choice(self._all_days)
            before = self._night.heard()
            command = ("try", "drawn", "--rows", "3", "--day", day, "--package", "declared")
            code, printed = self._night.command(*command)
            if code not in (0, 1, STOPPED):
                self._night.faults.append(f"{command} ended with {code}: {printed}")
            self._take_all(before)
            for name, bill in self._vendor.bills.items():  # no budget counts it
                self._night.tried[name] += bill - before.bills.get(name, Decimal(0))

    def _capped(self, _look):
        day = self._draws.choice(self._all_days)
        many, run = self._draws.randint(0, 12), ("run", "drawn", "--day", day)
        if self._draws.random() < 0.5 or not any(look.prices for look in self._drawn.looks):
            self._judged((*run, "--max-calls", f"{many}"), [day], may_stop=True)
            return
        cap, before = Decimal("0.004") * many, self._night.heard()
        self._judged((*run, "--max-cost", f"{cap} USD"), [day], may_stop=True)
        spent = sum(self._vendor.bills.values()) - sum(before.bills.values())
        is_exact = all(look.kind not in ("pages", "batch") for look in self._drawn.looks)
        if spent > cap and is_exact:
            self._night.faults.append(f"{run} cost {spent}, with a cap of {cap}")

    # -- what becomes of them ----------------------------------------------------------------------
    def _judged(self, command, days, *, may_fail=False, may_stop=False, **facts):
        night, before = self._night, self._night.heard()
        code, printed = night.command(*command, "--package", "declared")
        is_spent = self._judge_budgets()
        must_stop, is_unsure = self._must_stop(days, facts)
        may_stop |= must_stop or (is_unsure and self._may_stop())
        if must_stop and not code:
            night.faults.append(f"{command} stopped at no denied or failed call: {printed}")
        if code == STOPPED and (may_stop or is_spent):
            night.has_stopped = True
            self._take_all(before)
            night.ended = "" if command[0] == "run" and len(days) == 1 else printed
            return
        if code:
            night.ended = printed
            if not may_fail:
                night.faults.append(f"{command} ended with {code}: {printed}")
            return
        if command[0] == "refresh" and self._world.unsure and "published " not in printed:
            return  # the ledger had none
        runs = {}
        for day in days:
            runs[day] = Run(self._world, self._drawn.looks, self._vendor.epoch, **facts)
            night.published[day] = runs[day].rows(self._drawn.days[day])
            night.table = self._drawn.shapes[day].in_table(night.table, COLUMNS)
        night.faults += Judge(night).judge_runs(runs, before)
        night.faults += Figures(night).judge_runs(runs, before, printed)
        self._world.seen = Counter(self._vendor.seen)

    def _may_stop(self):
        looks = self._drawn.looks
        return any(
            {"denied", "barred"} & {*look.moods} or look.policies["on_error"] == "fail"
            for look in looks
        )

    def _must_stop(self, days, facts):
        """Whether a day stops for sure, by a denied call or a row that fails by its policy; and
        whether what else is in a batch decides it.
        """
        world = copy.deepcopy(self._world)
        for day in days:
            run = Run(world, self._drawn.looks, self._vendor.epoch, **facts)
            run.rows(self._drawn.days[day])
            if run.stops or world.unsure:
                break
        return run.stops and not world.unsure, bool(world.unsure)

    def _judge_budgets(self):
        """Note a budget that is exceeded; return whether any may be at its end."""
        is_spent = False
        for look in self._drawn.looks:
            if not look.budget:
                continue
            spent = self._night.budgeted(look)
            is_renewed = self._drawn.auth[look.service].startswith("oauth")  # a 401 is repeated
            if spent > look.budget and not is_renewed:
                self._night.faults.append(
                    f"{look.name} ({look.kind}) cost {spent}, with a budget of {look.budget}"
                )
            is_exact = not (look.bills_use or look.kind == "pages")
            is_spent |= not is_exact or spent + most_of_call(look) > look.budget
        return is_spent

    def _take_all(self, before):
        """Keep what the vendor heard of a command that asks some keys."""
        for look in self._drawn.looks:
            is_cut = not look.idempotent and self._may_stop()  # it may have marked more calls
            is_cut |= look.finishes  # a call whose row has left
            if look.kind in IN_SQL or look.error_ttl or is_cut:  # nobody heard of all it stored
                self._world.unsure.add(look.name)
            for (name, key), count in self._vendor.seen.items():
                if name == look.name and count > before.seen[name, key]:
                    self._take(look, key, count, count - before.seen[name, key])
        self._world.seen = Counter(self._vendor.seen)

    def _take(self, look, key, count, calls):
        """Keep what a key's last request brought, of so many in all and calls of the command."""
        what = reaction(look.mood(key), count - 1)
        has_failed = what in PASSING and calls <= look.retries
        if look.kind == "batch" or (look.repair and status_of(look, key, what) == "error"):
            self._world.unsure.add(look.name)
        if has_failed and not look.idempotent:
            self._world.keep(look, key, "500", self._vendor.epoch)
        elif not has_failed and what not in THROTTLED:
            self._world.keep(look, key, what, self._vendor.epoch)
