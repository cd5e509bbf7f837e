"""The steps of the demo: nightly runs, a day killed and started again, a finished day run again."""

from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable

from demo import crash, picture
from demo.calls import Tally
from demo.nights import Nights, find_record
from demo.run_end import RunEnd
from demo.surroundings import DATA, DONE, answers_kept, environment
from demo.table import agreement, asked_twice, counted_by_us, day_table, requests_at_service
from demo.watching import Watch
from demo.weather_service import WeatherService
from enrichments.flights import flights
from jobs.schema.records import DayRecord

REPORTS = DATA / "reports" / flights.name
PICTURE = DATA / "demo" / "crash.svg"
LEGEND = """\
  rows = the sum of the outcomes, for each lookup; late rows are called and counted like all others
  wall = first call to last; limit = sum of the calls' times / calls in flight, the shortest
  lookups run side by side, row by row: a fast one takes as long as the slowest beside it"""


def heading(number: int, title: str) -> str:
    """Return the beginning of a step's line; only spaces if the step continues."""
    return f"[{number}/5] {title:<14}" if title else " " * 20


class Story:
    def __init__(
        self, days: Sequence[str], service: WeatherService, stop_service_at: float | None
    ) -> None:
        self._days = days
        self._service = service
        self._crash = days[1] if len(days) > 1 and stop_service_at is None else None
        stop_on = days[-1] if stop_service_at is not None else None
        self._watch = Watch(
            "", service, stop_on, crash.AT if stop_service_at is None else stop_service_at
        )
        self._nights = Nights(flights.name, environment(service.url))
        self._records: dict[str, DayRecord] = {}
        self._counted: list[str] = []  # sentences with counts of the service

    def reported(self) -> int:
        nightly = [day for day in self._days if day != self._crash]
        if not (self._undisturbed(nightly) and self._killed_and_again() and self._rerun()):
            return 1
        done = self._in_order()
        print(f"\n{day_table(done)}\n{LEGEND}\n\nCounted at the weather service, not by Tidegate")
        for line in self._counted:
            print(f"  {line}")
        print(f"\n{where(done[-1])}")
        DONE.touch()
        return 0

    def _run(self, title: str, days: Sequence[str]) -> bool:
        self._watch.heading = title
        ends = self._nights.run(days, self._watch)
        self._watch.end()
        for end in ends:
            if (record := find_record(end, flights.name)) is not None:
                self._records[end.day] = record
        if len(ends) == len(days) and ends[-1].success:
            return True
        if self._records:
            print(f"\n{day_table(self._in_order())}\n{LEGEND}")
        print(f"\n{not_published(ends, days, self._nights.log)}")
        return False

    def _undisturbed(self, days: Sequence[str]) -> bool:
        before = len(self._service.calls())
        published = self._run(heading(3, "nightly runs"), days)
        calls = self._service.calls()[before:]
        self._counted += [
            f"{', '.join(days)}: {requests_at_service(calls)}",
            agreement(calls, counted_by_us(self._in_order())),
        ]
        return published

    def _killed_and_again(self) -> bool:
        day = self._crash
        if day is None:
            return True
        before, kept = len(self._service.calls()), answers_kept()
        self._watch.heading, self._watch.crash_on = heading(4, "the crash"), day
        self._nights.run([day], self._watch)
        self._watch.note = (
            f"killed with -9: {answers_kept() - kept:,} answers had arrived and are stored"
        )
        self._watch.end()
        self._watch.note = "same command again"
        published = self._run(heading(4, ""), [day])
        self._watch.note = ""
        calls = self._service.calls()[before:]
        if not published:
            return False
        by_hand = crash.gather_killed_and_again(
            day, self._service, DATA / "demo" / "by_hand.parquet"
        )
        PICTURE.write_text(picture.draw(Tally.of(calls), Tally.of(by_hand)), encoding="utf-8")
        self._counted += [
            f"{day}, killed at half and started again:    {asked_twice(calls)}",
            f"hand-written asyncio.gather, same crash:      {asked_twice(by_hand)}",
        ]
        return True

    def _rerun(self) -> bool:
        if self._crash is None:
            return True
        day = self._days[0]
        first, before = self._records[day], len(self._service.calls())
        published = self._run(heading(5, "the rerun"), [day])
        self._records[day] = first
        calls = len(self._service.calls()) - before
        print(
            f"{heading(5, '')}{day}  run again: {calls:,} calls at the weather service", flush=True
        )
        return published

    def _in_order(self) -> list[DayRecord]:
        return [self._records[day] for day in sorted(self._records)]


def not_published(ends: Sequence[RunEnd], days: Sequence[str], log: Path) -> str:
    if ends and not ends[-1].success:
        failed = ends[-1]
        day, reason = failed.day, failed.reason.removeprefix("Not published: ")
        record = find_record(failed, flights.name)
    else:
        day, reason, record = (
            days[len(ends)],
            f"Dagster ended before the day was done; {log} says why.",
            None,
        )
    cure = f"open {REPORTS / day / 'index.html'}, fix the cause, " if record else ""
    return (
        f"NOT PUBLISHED {day}: {reason}\nSafe: {_safe(day, days)}   Next: {cure}`make demo` again."
    )


def _safe(day: str, days: Sequence[str]) -> str:
    table = flights.output.path
    partitions = DeltaTable(table).partitions() if DeltaTable.is_deltatable(table) else []
    published = sorted({partition[flights.input.partition] for partition in partitions} & set(days))
    others = [other for other in published if other != day]
    message = (
        f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} published"
        if others
        else "no partial day is published"
    )
    return (
        f"{message}; readers still see the previous {day}." if day in published else f"{message}."
    )


def where(record: DayRecord) -> str:
    table = flights.output.path
    look = f"from deltalake import DeltaTable; print(DeltaTable('{table}').to_pandas())"
    return "\n".join(
        [
            f'  table     {table}   .venv/bin/python -c "{look}"',
            f"  reports   {REPORTS}/index.html, {REPORTS / record.facts.day}/index.html",
            "  see it    make ui",
        ]
    )
