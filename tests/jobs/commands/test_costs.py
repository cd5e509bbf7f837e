"""What the services billed in a month, to the cent, from the records of runs."""

import csv
import dataclasses
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from enrichments.flights import flights
from jobs.commands.costs import FOCUS, list_costs
from jobs.errors import DeclarationError
from jobs.schema.records import Billed, DayFacts, DayMetrics, DayRecord, LookupMetrics, PriceFacts
from jobs.tables.records import run_bills, run_records
from orchestration.common.table_status import read_table
from tidegate.__main__ import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", "http://weather.example")
    monkeypatch.chdir(tmp_path)


def ran(day, run_id, started_at, cost, *, units=10, currency="USD", saved="0"):
    name = flights.facts().lookups[0].name
    figures = LookupMetrics(name, {"ok": units}, units, 0, 1.0, 1.0, None, None)
    figures = dataclasses.replace(figures, billed=Billed(units, 1, "item", cost, currency, saved))
    facts = DayFacts(flights.facts(), day, run_id, (), (), "", (), (), started_at, started_at)
    run_records.save(DayRecord(facts, DayMetrics(units, units, 0, (figures,))))


def killed(day, run_id, started_at, units, unit="item"):
    """A run whose tasks had so many units billed."""
    priced = dataclasses.replace(
        flights.facts().lookups[0], prices=(PriceFacts("0.0040", "USD", unit),)
    )
    declared = dataclasses.replace(flights.facts(), lookups=(priced, *flights.facts().lookups[1:]))
    facts = DayFacts(declared, day, run_id, (), (), "", (), (), started_at, "")
    meter = run_bills.begin(facts, flights.lookups).open()
    for _ in range(units):
        meter.add(priced.name, unit, 20_000, 1)
    meter.close()


def test_costs_add_up_exactly_the_runs_of_the_month(capsys):
    ran("2026-10-31", "a", "2026-11-01T00:00:00+00:00", "0.1000")
    ran("2026-11-02", "b", "2026-11-03T02:15:00+00:00", "0.2000", saved="7.5000")
    ran("2026-11-02", "c", "2026-11-03T05:00:00+00:00", "12345.0001", units=2000)
    ran("2026-11-30", "d", "2026-12-01T00:00:01+00:00", "99.0000")
    killed("2026-11-05", "e", "2026-11-06T02:00:00+00:00", 5)
    killed("2026-11-05", "f", "2026-12-06T02:00:00+00:00", 5)
    assert main(["costs", "--month", "2026-11"]) == 0
    headings, line, total, warning = capsys.readouterr().out.splitlines()
    assert headings.split() == ["service", "enrichment", "lookup", "billed", "cost", "saved"]
    assert line.split()[-6:] == ["2,025", "items", "12,345.3201", "USD", "7.50", "USD"]
    assert total == "2026-11: 12,345.3201 USD"
    assert warning == "1 run of a day in the sum wrote no table: stopped, killed or still at work."


def test_status_counts_the_billed_requests_of_a_run_without_a_record():
    killed("2026-11-05", "e", "2026-11-06T02:00:00+00:00", 5, "request")
    work = read_table(flights, 1, dt.datetime(2026, 11, 6, 7, tzinfo=dt.UTC)).last_24_hours
    assert (work.runs, work.calls, work.cost) == (1, 5, {"USD": 0.02})


def test_the_bill_of_a_killed_run_counts_after_the_project_moved(tmp_path, monkeypatch):
    killed("2026-11-05", "e", "2026-11-06T02:00:00+00:00", 5)
    there = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(there)
    monkeypatch.chdir(there)
    assert list_costs("2026-11").totals() == {"USD": Decimal("0.0200")}


def test_the_bill_of_a_killed_run_outlives_its_table_and_its_work_folder():
    killed("2026-11-05", "e", "2026-11-06T02:00:00+00:00", 5)
    assert [path.name for path in Path("data").iterdir()] == ["runs"]


def test_tasks_on_other_machines_count_in_the_folder_of_the_table():
    facts = DayFacts(flights.facts(), "2026-11-05", "e", (), (), "", (), (), "", "")
    priced = dataclasses.replace(
        facts.declared.lookups[0], prices=(PriceFacts("1", "USD", "item"),)
    )
    declared = dataclasses.replace(facts.declared, lookups=(priced, *facts.declared.lookups[1:]))
    facts = dataclasses.replace(facts, declared=declared)
    folder = run_bills.begin(facts, flights.lookups, elsewhere=True).folder
    assert Path(folder).is_relative_to(Path(declared.table).resolve())


@pytest.mark.parametrize("read", ["bills", "load"])
@pytest.mark.parametrize("first", [True, False])
def test_a_run_that_ends_while_costs_are_read_counts_once(monkeypatch, read, first):
    (day, run_id, started_at) = run = ("2026-11-05", "e", "2026-11-06T02:00:00+00:00")
    killed(*run, 5)
    (bill,) = run_records.bills("flights_enriched")
    real = getattr(run_records, read)

    def end():
        ran(day, run_id, started_at, "0.0200", units=5)
        run_bills.end(bill)

    def read_as_it_ends(name):
        if first:
            end()
        found = real(name)
        if not first:
            end()
        return found

    monkeypatch.setattr(run_records, read, read_as_it_ends)
    assert list_costs("2026-11").totals() == {"USD": Decimal("0.0200")}


def test_a_forget_adds_no_calls_and_no_cost(local_days):
    local_days.towns.declare_too(
        "from tidegate import Price",
        "priced = replace(weather.service, prices=[Price('1 USD')])",
        "towns = replace(towns, summaries=[], lookups=[replace(weather, service=priced)])",
    )
    local_days.write_input("2013-01-10", ["a", "b", "c"])
    local_days.run("2013-01-10")
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    for town in "ab":
        main(["forget", "weather", "--package", "declared", "--key", f"town={town}"])
        assert list_costs(month).totals() == {"USD": Decimal(3)}
        work = read_table(local_days.towns.enrichment, 14, dt.datetime.now(dt.UTC)).this_month
        assert (work.runs, work.rows, work.calls, work.cost) == (1, 3, 3, {"USD": 3.0})


def test_show_lists_the_cost_of_each_stopped_run_of_a_day(local_days, capsys):
    local_days.towns.declare_too(
        "from tidegate import Price",
        "priced = replace(weather.service, prices=[Price('1 USD'), Price('2 USD', per='request')])",
        "towns = replace(towns, summaries=[], lookups=[replace(weather, service=priced)])",
    )
    local_days.write_input("2013-01-10", ["a", "b", "c"])
    assert local_days.run("2013-01-10", options=["--max-calls", "2"]) == 3
    assert local_days.run("2013-01-10") == 0
    capsys.readouterr()
    command = ["show", "towns", "2013-01-10", "--package", "declared"]
    assert main([*command, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["cost"] for run in runs] == ["6 USD", "3 USD"]
    assert main(command) == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines() if " USD" in line] == [
        ["6.00", "USD"], ["3.00", "USD"]
    ]  # fmt: skip


@pytest.mark.parametrize("every", ["day", "hour"])
def test_a_try_does_not_count_as_a_day_of_the_table(local_days, every, capsys):
    days = {"day": "2013-01-10", "hour": "2013-01-10T05Z"}
    local_days.towns.declare_too(
        "from tidegate import Price",
        "priced = replace(weather.service, prices=[Price('1 USD')])",
        f"towns = replace(towns, input=replace(towns.input, every='{every}'), summaries=[],",
        "    lookups=[replace(weather, service=priced)])",
    )
    local_days.write_input(days[every], ["a"])
    assert local_days.run(days[every]) == 0
    assert main(["try", "towns", "--package", "declared", "--discard"]) == 0
    capsys.readouterr()
    assert main(["status", "--package", "declared", "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [day["day"] for day in table["days"]] == [days[every]]
    assert table["last_24_hours"]["cost"] == {"USD": 2.0}


def test_the_csv_has_a_line_per_day_and_lookup_in_columns_of_focus(tmp_path):
    ran("2026-11-02", "b", "2026-11-03T02:15:00+00:00", "0.2000")
    ran("2026-11-02", "c", "2026-11-03T05:00:00+00:00", "0.3000")
    ran("2026-11-03", "d", "2026-11-04T02:15:00+00:00", "0.4000")
    assert main(["costs", "--month", "2026-11", "--csv", str(tmp_path / "focus.csv")]) == 0
    lines = list(csv.DictReader(io.StringIO((tmp_path / "focus.csv").read_text())))
    assert tuple(lines[0]) == FOCUS
    assert [
        (line["ChargePeriodStart"], line["BilledCost"], line["ConsumedQuantity"]) for line in lines
    ] == [
        ("2026-11-03T00:00:00Z", "0.5000", "20"),
        ("2026-11-04T00:00:00Z", "0.4000", "10"),
    ]
    assert {(line["BillingPeriodStart"], line["BillingPeriodEnd"]) for line in lines} == {
        ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    }


def test_currencies_are_not_added_up():
    ran("2026-11-02", "b", "2026-11-03T02:15:00+00:00", "0.2000")
    ran("2026-11-03", "c", "2026-11-04T02:15:00+00:00", "0.3000", currency="EUR")
    assert {name: str(total) for name, total in list_costs("2026-11").totals().items()} == {
        "USD": "0.2000",
        "EUR": "0.3000",
    }


def test_costs_reports_a_month_without_a_priced_run_and_refuses_a_wrong_month(capsys):
    assert main(["costs", "--month", "2026-11"]) == 0
    assert capsys.readouterr().out == "2026-11: no run with a price was made here.\n"
    ran("2026-10-02", "a", "2026-10-03T02:15:00+00:00", "0.2000")
    assert main(["costs", "--month", "2026-10", "--enrichment", "flights_enrichd"]) == 0
    assert capsys.readouterr().out == (
        "2026-10: no run of 'flights_enrichd' with a price was made here. "
        "Did you mean 'flights_enriched'?\n"
    )
    with pytest.raises(
        DeclarationError, match="--month is '2026-13'; it must be a month, such as 2026-11"
    ):
        list_costs("2026-13")


def test_a_stored_answer_saves_the_mean_token_cost_of_an_answer():
    model = dataclasses.replace(
        flights.facts().lookups[0], prices=(PriceFacts("3", "USD", "token", 1000),)
    )

    def figures(units, answered, keys):
        billed = Billed(units, 0, "token", f"{Decimal(3) * units / 1000:f}", "USD")
        one = LookupMetrics(
            model.name,
            {},
            answered,
            0,
            1.0,
            1.0,
            None,
            None,
            answered=answered,
            keys_from_ledger=keys,
            billed=billed,
        )
        return DayMetrics(answered, answered, 0, (one,))

    def saved(now, *earlier):
        facts = DayFacts(flights.facts(), "2026-11-02", "r", (), (), "", (), (), "", "")
        records = [DayRecord(facts, figures(*run)) for run in earlier]
        (found,) = run_bills.with_saved(figures(*now), [model], lambda: records).lookups
        return found.billed.saved

    assert saved((500, 10, 4)) == "0.6"
    assert saved((0, 0, 100), (0, 0, 100), (1000, 3, 0), (9000, 3, 0)) == "100"
    assert saved((0, 0, 100)) == "0"
    assert saved((500, 10, 0), (9000, 3, 0)) == "0"
