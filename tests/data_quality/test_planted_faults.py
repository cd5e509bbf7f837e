import copy

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from honest_day import honest_day
from planted_faults import FAULTS, PLACES, Day, Fault, Planted

from data_quality.day import check
from jobs.schema.records import Verdict

pytestmark = pytest.mark.spark

NO_HISTORY = {"input_day_complete"}  # a warning that says "not run": there are no earlier days


def case(fault: Fault, mode: str, place: str):
    return pytest.param(fault, mode, place, id=f"{fault.name}, {mode}, {place}")


def by_turns(faults: list[Fault]):
    """Every fault once, its modes and the places by turns."""
    return [
        case(fault, fault.modes[turn % len(fault.modes)], PLACES[turn % len(PLACES)])
        for turn, fault in enumerate(faults)
    ]


ONCE = by_turns([fault for fault in FAULTS if fault.quick])
SMALL = [case(fault, mode, place) for fault in FAULTS for mode in fault.modes for place in PLACES]
# the days of one mode are made once
LARGE = sorted(by_turns(list(FAULTS)), key=lambda case: case.values[1])
SIZE = 1_000_000


def judge(spark, day: Day, *, ledger: bool = False) -> tuple[Verdict, ...]:
    facts, figures = day.write()
    return check(spark, facts, figures, day.ledger() if ledger else None).verdicts


def names(found: tuple[Verdict, ...], status: str) -> set[str]:
    return {verdict.check for verdict in found if verdict.status == status}


def rows_in_evidence(verdict: Verdict) -> set[tuple[str, int]]:
    """(input file, row): flights are numbered by input file and row, see honest_day."""
    found = set()
    for row in verdict.evidence:
        file, number = (
            divmod(row["flight"], 10_000_000) if row.get("flight") is not None else (None, None)
        )
        if "_source_row" in row:
            found.add((row["_source_file"].rsplit("/", 1)[-1], row["_source_row"]))
        else:
            found.add((f"part-{file:05d}.parquet", number))
    return found


def assert_seen(found: tuple[Verdict, ...], planted: Planted) -> None:
    assert names(found, "failed") == planted.red
    assert names(found, "not_run") - NO_HISTORY <= planted.unjudged
    for verdict in found:
        if verdict.status == "failed":
            assert rows_in_evidence(verdict) == planted.rows, verdict
            assert verdict.unexpected_count >= 1
            assert verdict.holds_back


@pytest.mark.parametrize(("fault", "mode", "place"), ONCE)
def test_a_planted_fault_turns_only_its_checks_red_and_its_rows_are_named(
    spark, tmp_path, fault: Fault, mode, place
):
    judged_as_planted(spark, tmp_path, fault, mode, place)


@pytest.mark.proof
@pytest.mark.parametrize(("fault", "mode", "place"), SMALL)
def test_a_planted_fault_is_found_in_every_mode_at_every_place(
    spark, tmp_path, fault: Fault, mode, place
):
    judged_as_planted(spark, tmp_path, fault, mode, place)


def judged_as_planted(spark, tmp_path, fault: Fault, mode: str, place: str) -> None:
    day = honest_day(tmp_path / "with space", mode, files_of_a_task=2)
    planted = fault.plant(day, place)
    assert_seen(judge(spark, day, ledger=fault.ledger), planted)


@pytest.fixture(scope="module")
def large_days(tmp_path_factory):
    """One honest day of a million rows per mode, made when first asked for: three tasks with rows,
    one without.
    """
    made: dict[str, Day] = {}

    def get(mode: str) -> Day:
        if mode not in made:
            made.clear()  # one day of a million rows at a time is enough to hold
            sizes = (SIZE * 3 // 10, SIZE * 3 // 10, 0, SIZE * 4 // 10)
            made[mode] = honest_day(
                tmp_path_factory.mktemp(mode), mode, sizes=sizes, files_of_a_task=2, seed=7
            )
        return copy.copy(made[mode])

    return get


@pytest.mark.proof
@pytest.mark.parametrize(("fault", "mode", "place"), LARGE)
def test_a_planted_fault_in_a_million_rows_is_found(spark, large_days, fault: Fault, mode, place):
    day = large_days(mode)
    day.outputs = dict(day.outputs)
    planted = fault.plant(day, place)
    assert_seen(judge(spark, day, ledger=fault.ledger), planted)


def test_event_times_of_a_task_that_lost_rows_are_not_judged(spark, tmp_path):
    """The last row of one task, which moved no watermark, and the first of the next."""
    day = honest_day(tmp_path, "unordered", sizes=(60, 50), seed=5)
    (first_in, second_in), (first, second) = day.inputs.values(), day.outputs.values()
    whole = pa.concat_tables([first_in, second_in])
    rows = pc.add(second["_source_row"], 60)
    second = second.set_column(second.schema.get_field_index("_source_row"), "_source_row", rows)
    file = pa.array([first["_source_file"][0].as_py()] * second.num_rows)
    second = second.set_column(second.schema.get_field_index("_source_file"), "_source_file", file)
    first = first.filter(pc.not_equal(first["_input_seq"], 59))
    second = second.filter(pc.not_equal(second["_input_seq"], 0))
    day.inputs = {next(iter(day.inputs)): whole}
    day.outputs = dict(zip(day.outputs, (first, second), strict=True))
    found = judge(spark, day)
    assert names(found, "failed") == {"every_row_once"}
    assert names(found, "not_run") - NO_HISTORY == {"watermarks_not_crossed", "late_rows_marked"}
    (lost,) = [verdict for verdict in found if verdict.status == "failed"]
    assert {row["_source_row"] for row in lost.evidence} == {59, 60}
