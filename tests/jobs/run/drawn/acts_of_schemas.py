"""Acts that change a schema: of the input, or of the declaration; and what is held back."""

import copy
from dataclasses import replace

from tests.jobs.run.drawn.acts import STOPPED, Acts
from tests.jobs.run.drawn.declarations import words_of
from tests.jobs.run.drawn.drawing import draw_later
from tests.jobs.run.drawn.expected import Run
from tests.jobs.run.drawn.input_files import COLUMNS
from tests.jobs.run.drawn.judging import Judge
from tests.jobs.run.drawn.outcomes import FAILED, outcome_in

HELD, WRONG = 1, 2  # exit status


class ActsOfSchemas(Acts):
    """The acts of a night, with these."""

    def _reshape(self, _look):
        """Columns of a day's input come, change their type or go, and the day runs again."""
        drawn, day = self._drawn, self._draws.choice(self._all_days)
        old, days = drawn.shapes[day], [day] if drawn.form == "parquet" else self._all_days
        rows = {day: drawn.days[day] for day in days}
        shape = old.changed(self._draws, COLUMNS, drawn.form, self._night.table)
        self._write(dict.fromkeys(days, shape))
        command = ("run", "drawn", "--day", day)
        if refused := shape.refused(self._night.table, drawn.columns_read):
            self._refused(command, refused)
        else:
            self._judged(command, [day])
            if shape.in_table(self._night.table, COLUMNS) == self._night.table:
                return
        drawn.days |= rows  # the day was not published
        self._write(dict.fromkeys(days, old), redraws=False)

    def _write(self, shapes, *, redraws=True):
        """Write days with these shapes."""
        self._drawn.shapes |= shapes
        for day in shapes if redraws else ():
            rows = self._drawn.days[day]
            self._drawn.days[day] = [shapes[day].row(row, self._draws) for row in rows]
        for day in shapes:
            self._night.write_day(day)
        self._night.declare()

    def _refused(self, command, why):
        """A run that must be refused before any call, and change nothing."""
        before = self._night.heard()
        code, printed = self._night.command(*command, "--package", "declared")
        if code != WRONG or self._night.heard().requests != before.requests:
            self._night.faults.append(f"{command} ended with {code}, though {why}: {printed}")
        if self._night.published:
            self._night.faults += Judge(self._night).judge_table()

    def _gain(self, _look):
        """A lookup is added that reads only columns that all days have."""
        drawn, name = self._drawn, "defghijk"[len(self._vendor.looks)]
        before = [look for look in drawn.looks if not look.waterfall]
        look = draw_later(self._draws, self._night.seed, name, before)
        if not drawn.bounds_itself and not self._lacks(*words_of(look)):
            self._night.gain(look)
        self._days(look)

    def _drop(self, _look):
        """A lookup that no other one needs is removed."""
        drawn = self._drawn
        read = {word for look in drawn.looks for word in words_of(look)}
        can = [
            look for look in drawn.looks
            if not any(word.startswith(f"{look.name}_") for word in read)
            and not (look.waterfall or look.budget) and self._night.beside(look) == [look]
        ]  # fmt: skip
        if can and len(drawn.looks) > 1:
            drawn.looks.remove(self._draws.choice(can))
            self._night.declare()
        self._draws.choice((self._run, self._remap))(None)

    def _mistype(self, look):
        """A published column is declared with another type."""
        if not self._night.published or look.column("n") not in self._night.columns():
            return
        other = replace(look, of_n=self._draws.choice(("INT", "STRING", "DECIMAL(20,0)")))
        waterfall = [
            vendor for vendor in self._drawn.looks if vendor.waterfall == look.waterfall != ""
        ]
        if len(waterfall) < 2:
            self._night.change(look, other)
            day = self._draws.choice(self._all_days)
            self._refused(
                ("run", "drawn", "--day", day), f"{look.name} has a column of another type"
            )
            self._night.change(other, look)

    def _strict(self, _look):
        """No row may fail: a day with one is held back, and later published without its calls."""
        day, command = self._draws.choice(self._all_days), ("run", "drawn", "--day")
        run = Run(copy.deepcopy(self._world), self._drawn.looks, self._vendor.epoch)
        rows = run.rows(self._drawn.days[day])
        statuses = {outcome_in(row, look).status for row in rows for look in self._drawn.looks}
        if statuses & {*FAILED} and not run.stops and not run.world.unsure:  # else others decide
            self._tolerate(0.0)
            self._held((*command, day), day)
            self._tolerate(1.0)
        if not self._night.faults and not self._night.ended:
            self._judged((*command, day), [day])

    def _tolerate(self, share):
        self._drawn.tolerance = share
        self._night.declare()

    def _held(self, command, day):
        before = self._night.heard()
        code, printed = self._night.command(*command, "--package", "declared")
        if code == STOPPED and self._judge_budgets():
            self._night.ended = printed
        elif code != HELD:
            self._night.faults.append(f"{command} held nothing back: {code}, {printed}")
        run = Run(self._world, self._drawn.looks, self._vendor.epoch)
        rows = run.rows(self._drawn.days[day])
        if not self._night.ended:
            self._night.faults += Judge(self._night).judge_held(run, before)
            stored = sum(asked.counts["from_ledger"] for asked in run.asked.values())
            self._night.done.update(rows=len(rows), answers_from_ledger=stored)
