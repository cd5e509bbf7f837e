"""`python -m tidegate check`: what it says of declarations that are right and wrong, and that it
asks nothing.
"""

import datetime as dt
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from jobs.commands.check import Finding, check_package
from jobs.errors import DeclarationError
from tidegate.__main__ import main

ROOT = Path(__file__).parents[2]
DECLARATION = """
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("a check asks nothing")


mood = AsyncFunctionLookup(
    name="mood", keys={{"k": "{column}"}}, returns="score {type}", timeout=1.0, max_concurrency=1, function=Never
)
named = enrichment = Enrichment(
    name="{name}",
    input=Input(path="data/raw/flights", partition="date"),
    lookups=[mood],
    output=Output(path="{output}"),
)
"""


@pytest.fixture
def declare(project, monkeypatch, request):
    """Adds a module to a package of declarations of this test's own; gives the package's name."""
    package = f"declared_{abs(hash(request.node.name))}"
    (project / package).mkdir()
    (project / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(project)

    def add(module, text=DECLARATION, **fields):
        standard = {
            "name": module,
            "column": "origin",
            "type": "DOUBLE",
            "output": f"data/published/{module}",
        }
        (project / package / f"{module}.py").write_text(text.format(**standard | fields))
        return package

    return add


@pytest.mark.process
def test_the_program_tidegate_imports_no_project_file_as_a_python_module(declare, project):
    package = declare("moods")
    for name in ("http", "queue", "secrets"):
        (project / f"{name}.py").write_text("raise AssertionError")
    done = subprocess.run(
        [Path(sys.executable).with_name("tidegate"), "check", "--package", package],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("moods")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.proof
@pytest.mark.process
def test_expectations_are_not_checked_where_python_removes_docstrings(declare, project):
    wanted = 'expectations=[Expectation("expect_table_row_count_to_equal", value=1)],\n)'
    text = DECLARATION.replace("Enrichment, ", "Enrichment, Expectation, ")
    package = declare("moods", text.removesuffix(")\n") + f"    {wanted}\n")
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "tidegate", "check", "--package", package],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "expectations: Great Expectations needs docstrings, which Python removes" in done.stdout


@pytest.mark.parametrize("chosen", ["option", "environment"])
def test_check_reports_what_needs_spark_as_wrong_for_the_local_engine(
    declare, capsys, monkeypatch, chosen
):
    package = declare("moods", column="reverse(origin)")
    assert main(["check", "--package", package]) == 0
    if chosen == "environment":
        monkeypatch.setenv("TIDEGATE_ENGINE", "local")
    capsys.readouterr()
    assert (
        main(
            ["check", "--package", package, *(["--engine", "local"] if chosen == "option" else [])]
        )
        == 2
    )
    message = capsys.readouterr().out
    assert "WRONG   lookup mood: keys.k: 'reverse(origin)' needs Spark" in message
    assert "Run it on Spark, the default engine." in message


def test_a_missing_column_has_one_line_for_the_local_engine_too(declare, capsys):
    package = declare("moods", column="orgin")
    assert main(["check", "--package", package, "--engine", "local"]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_check_accepts_the_name_of_an_enrichment(declare, capsys):
    package = declare("moods")
    declare("tempers", column="orgin")
    assert main(["check", "moods", "--package", package]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["moods", "right"]
    assert main(["check", "tempers", "--package", package]) == 2


def test_check_accepts_an_enrichment_beside_a_file_that_cannot_be_loaded(declare, capsys):
    package = declare("moods")
    declare("broken", text="import nothing_here")
    assert main(["check", "moods", "--package", package]) == 0
    assert main(["check", f"{package}.moods:named"]) == 0
    assert "cannot be loaded" not in capsys.readouterr().out


def test_a_right_declaration_is_reported_with_the_last_day_and_its_rows(declare, capsys):
    assert main(["check", "--package", declare("moods")]) == 0
    message = capsys.readouterr().out.split(maxsplit=2)
    assert message[:2] == ["moods", "right"]
    assert message[2].startswith("2013-01-10: 932 rows in ")
    assert message[2].endswith("lookups mood\n")


BATCHED = """
from tidegate import Batch, Enrichment, HttpLookup, Input, Output, Service

place = HttpLookup(
    name="place", service=Service(name="geo", url="{url}", max_concurrency=1), request="POST /batch",
    keys={{"q": "origin"}}, returns="lat DOUBLE", timeout=5.0,
    batch=Batch(max_items=9, max_wait=0.1, item="{{q}}"{more}),
)
named = enrichment = Enrichment(
    name="{name}", input=Input(path="data/raw/flights", partition="date"), lookups=[place],
    output=Output(path="{output}"),
)
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("more", "trusts"), [("", True), (', position="$.index"', False), (', match="$.code"', False)]
)
def test_check_warns_of_a_batch_matched_only_by_order(
    declare, weather_service, capsys, more, trusts
):
    package = declare("batched", BATCHED, url=weather_service.url, more=more)
    assert main(["check", "--package", package]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + trusts
    assert (
        "lookup place: batch: it trusts the service to answer in the order of the items"
        in lines[-1]
    ) is trusts


@pytest.mark.parametrize("times", ["1000", "1e300"])
def test_check_shows_a_suspiciously_long_timeout_in_hours(declare, weather_service, capsys, times):
    text = BATCHED.replace("timeout=", f"timeout={times} * ")
    package = declare("batched", text, url=weather_service.url, more="")
    assert main(["check", "--package", package]) == 0
    assert "lookup place: timeout is in seconds: " in capsys.readouterr().out


def test_check_continues_after_an_error(declare, capsys):
    declare("broken", text="import nothing_like_this\n")
    declare("misspelt", column="orgin")
    assert main(["check", "--package", declare("moods")]) == 2
    broken, misspelt, moods = capsys.readouterr().out.splitlines()
    assert broken.endswith(
        "WRONG   cannot be loaded: line 1: ModuleNotFoundError: No module named 'nothing_like_this'"
    )
    assert "no column 'orgin' in data/raw/flights. Did you mean 'origin'?" in misspelt
    assert " right " in moods


MANY = """
from tidegate import Enrichment, Env, HttpLookup, Input, Output, Service, Summary

lookups = [
    HttpLookup(
        name=name, service=Service(name=name, url=Env(f"{{name.upper()}}_URL"), max_concurrency=1),
        request="GET /{{k}}",
        keys={{"k": key}}, returns=f"{{name}}_x INT, {{column}} STRING", timeout=1.0,
    )
    for name, key, column in (("first", "orgin", "carrier"), ("second", "dst", "second_y"))
]
many = Enrichment(
    name="many", input=Input(path="data/raw/flights", row_id=["flihgt"]), lookups=lookups,
    output=Output(path="data/published/many"),
    summaries=[Summary(name="a", sql="SELECT nope FROM many"), Summary(name="b", sql="SELEKT 1")],
)
"""


@pytest.mark.parametrize("shown", ["", ', iceberg="lake.shop.many"'])
def test_check_lists_each_error_on_a_line(declare, capsys, shown):
    text = MANY.replace('"data/published/many"', f'"data/published/many"{shown}')
    assert main(["check", "--package", declare("many", text=text)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split(maxsplit=2)[:2] == ["many", "WRONG"] for line in lines)
    starts = (
        "lookup first: keys.k: no column 'orgin' in data/raw/flights. Did you mean 'origin'?",
        "lookup second: keys.k: no column 'dst' in data/raw/flights. Did you mean 'dest'?",
        "input: row_id: no column 'flihgt' in data/raw/flights. Did you mean 'flight'?",
        "lookup first: returns: 'carrier' exists in the input.",
        "summary a: its sql is wrong: ",
        "summary b: its sql is wrong: ",
        "lookup first: FIRST_URL is not set",
        "lookup second: SECOND_URL is not set",
    )
    assert len(lines) == len(starts)
    for line, start in zip(lines, starts, strict=True):
        assert line.split(maxsplit=2)[2].startswith(start), line


def test_check_tests_services_also_without_input(declare, capsys):
    declare("many", text=MANY.replace("data/raw/flights", "data/raw/nothing"))
    assert main(["check", "--package", declare("moods")]) == 2
    *many, moods = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=2)[2][:26] for line in many] == [
        "input: there is no folder ", "lookup first: FIRST_URL is", "lookup second: SECOND_URL ",
    ]  # fmt: skip
    assert " right " in moods


def test_check_suggests_a_similar_folder_for_a_missing_input(declare, capsys):
    Path("data/raw/flights").mkdir(parents=True, exist_ok=True)
    declare("many", text=MANY.replace("data/raw/flights", "data/raw/flight"))
    assert main(["check", "--package", declare("moods")]) == 2
    assert (
        "WRONG   input: there is no folder data/raw/flight. Did you mean 'data/raw/flights'?"
        in capsys.readouterr().out
    )


def test_the_last_day_of_check_is_a_day_that_a_run_finds(declare, project, capsys):
    folder = project / "lake" / "day=20261119"
    folder.mkdir(parents=True)
    (folder / "part.parquet").touch()
    text = DECLARATION.replace("data/raw/flights", "lake").replace(
        'partition="date"', 'partition="day"'
    )
    assert main(["check", "--package", declare("moods", text=text)]) == 2
    assert capsys.readouterr().out.endswith(
        "WRONG   input: lake has no folder of a day, such as day=2013-01-10. There is "
        "lake/day=20261119; the folder of a day is named day=YYYY-MM-DD (Input.partition).\n"
    )


RAISING = """

class Raising(Input):
    def folder(self, day):
        raise ValueError("mistaken\\nin two lines")


mood = AsyncFunctionLookup("""


def test_an_exception_of_a_declaration_is_reported_and_other_declarations_are_checked(
    declare, capsys
):
    text = DECLARATION.replace("mood = AsyncFunctionLookup(", RAISING).replace(
        "=Input(", "=Raising("
    )
    declare("a_raising", text=text)
    assert main(["check", "--package", declare("moods")]) == 2
    wrong, right = capsys.readouterr().out.splitlines()
    assert wrong.endswith(" WRONG   ValueError: mistaken in two lines")
    assert " right " in right


def test_a_day_without_input_is_wrong(declare, capsys):
    assert main(["check", "--package", declare("moods"), "--day", "2013-02-01"]) == 2
    assert "there is no data/raw/flights/date=2013-02-01" in capsys.readouterr().out


def test_a_named_partition_is_checked_and_another_name_is_refused(declare, project, capsys):
    regions = 'path="data/raw/regions", partition="date", every=["eu", "us"]'
    text = DECLARATION.replace('path="data/raw/flights", partition="date"', regions)
    package = declare("moods", text=text)
    day = project / "data/raw/flights/date=2013-01-10"
    shutil.copytree(day, project / "data/raw/regions/date=eu")
    assert main(["check", "moods", "--package", package, "--day", "eu"]) == 0
    assert "right   eu: " in capsys.readouterr().out
    assert main(["check", "moods", "--package", package, "--day", "2013-01-10"]) == 2
    assert capsys.readouterr().err == "--day is '2013-01-10'; it must be one of: eu, us.\n"


@pytest.mark.parametrize(
    ("ids", "message"), [([1, None], "'n' is null in 1 of 2 rows"), ([1, 1], "several rows have 1")]
)
def test_check_reports_null_and_repeated_row_ids_of_changed_rows(
    declare, project, capsys, ids, message
):
    place = project / "people/part=all"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"n": ids}), place / "part-0.parquet")
    people = 'path="people", partition="part", every=["all"], rows="changed", row_id=["n"]'
    text = DECLARATION.replace('path="data/raw/flights", partition="date"', people)
    assert main(["check", "--package", declare("moods", text=text, column="n")]) == 2
    assert message in capsys.readouterr().out


def test_an_hour_of_a_table_by_days_is_refused(declare, capsys):
    assert main(["check", "moods", "--package", declare("moods"), "--day", "2013-01-10T05Z"]) == 2
    assert "it must be a date, such as 2013-01-10" in capsys.readouterr().err


@pytest.mark.parametrize("day", ["2013-1-5", "yesterday"])
def test_a_malformed_day_is_refused(declare, capsys, day):
    assert main(["check", "--package", declare("moods"), "--day", day]) == 2
    assert "it must be a date, such as 2013-01-10" in capsys.readouterr().err


def test_check_reports_a_type_that_differs_from_the_published_table(declare, project):
    package = declare("moods", type="STRING")
    table = pa.table({"score": [1.0], "date": [dt.date(2013, 1, 9)]})
    write_deltalake(project / "data/published/moods", table, partition_by=["date"])
    ((_, message, finding),) = check_package(package)
    assert finding is Finding.WRONG
    assert message == (
        "lookup mood: returns: score is STRING, but in data/published/moods it is double. "
        "A column keeps its type: give it another name here."
    )


def test_check_reports_a_table_with_another_partition_column(declare, project):
    package = declare("moods")
    write_deltalake(
        project / "data/published/moods",
        pa.table({"score": [1.0], "day": ["x"]}),
        partition_by=["day"],
    )
    ((_, message, _),) = check_package(package)
    assert message.startswith(
        "output: data/published/moods is partitioned by day, the input by date."
    )


def test_check_reports_an_input_column_that_differs_from_the_published_table(declare, project):
    package = declare("moods")
    table = pa.table({"flight": ["B6 1"], "date": [dt.date(2013, 1, 9)]})
    write_deltalake(project / "data/published/moods", table, partition_by=["date"])
    ((_, message, finding),) = check_package(package)
    assert finding is Finding.WRONG
    assert message == (
        "input: 'flight' is integer in data/raw/flights/date=2013-01-10/part-00000.parquet, but in "
        "data/published/moods it is string. A column keeps its type: write it with that type, or "
        "under another name."
    )


def test_check_accepts_a_matching_table(declare, project):
    package = declare("moods")
    table = pa.table({"score": [1.0], "date": [dt.date(2013, 1, 9)]})
    write_deltalake(project / "data/published/moods", table, partition_by=["date"])
    assert [finding for *_, finding in check_package(package)] == [Finding.RIGHT]


def test_check_reports_two_enrichments_of_the_same_name(declare):
    declare("first", name="moods")
    (_, (_, message, finding)) = check_package(package := declare("second", name="moods"))
    assert finding is Finding.WRONG
    assert message == (
        f"{package}.second:named and {package}.first:named are both named 'moods'; rename one."
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("./data/published/moods/", "{two} and {one} both write data/published/moods; move one"),
        (
            "data/published/moods/more",
            (
                "{two} writes data/published/moods/more (table) inside data/published/moods (table) of "
                "{one}; move one"
            ),
        ),
        (
            "data/published/moods__audit",
            (
                "{two} and {one} both write data/published/moods__audit, table and audit table at "
                "once; move one"
            ),
        ),
    ],
)
def test_check_reports_two_enrichments_that_write_into_the_same_table(declare, output, message):
    declare("moods")
    (_, (_, found, finding)) = check_package(package := declare("others", output=output))
    assert finding is Finding.WRONG
    assert (
        found
        == message.format(one=f"{package}.moods:named", two=f"{package}.others:named")
        + " (Output.path)."
    )


@pytest.mark.parametrize("name", ["moods", "others"])
def test_check_reports_each_of_two_enrichments_of_a_table_by_its_name(declare, capsys, name):
    declare("moods")
    package = declare("others", output="data/published/moods")
    assert main(["check", name, "--package", package]) == 2
    assert "both write data/published/moods; move one" in capsys.readouterr().out


def test_check_reports_enrichments_that_read_each_other(declare, capsys):
    for name, other in (("ask", "tell"), ("tell", "ask")):
        of = f'path="data/published/{other}", format="delta"'
        text = DECLARATION.replace('path="data/raw/flights", partition="date"', of)
        package = declare(name, text=text)
    assert main(["check", "--package", package]) == 2
    assert "a circle has no first enrichment" in capsys.readouterr().out


def test_a_table_whose_path_begins_with_the_path_of_another_is_accepted(declare):
    declare("moods")
    assert [finding for *_, finding in check_package(declare("moods_2"))] == 2 * [Finding.RIGHT]


@pytest.mark.parametrize("by", ["others", "{package}.others:enrichment"])
def test_a_run_is_refused_if_another_enrichment_has_its_table(declare, capsys, by):
    declare("moods")
    package = declare("others", output="data/published/moods/others")
    assert (
        main(["run", by.format(package=package), "--package", package, "--day", "2013-01-10"]) == 2
    )
    assert f"inside data/published/moods (table) of {package}.moods:" in capsys.readouterr().err
    assert not Path("data/runs/others").exists()


def test_a_mistyped_field_is_reported_with_the_closest_name_and_its_line(declare, capsys):
    text = 'from tidegate import Input\n\nhere = Input(path="in", row_ids=["a"])\n'
    assert main(["check", "--package", declare("mistyped", text=text)]) == 2
    message = "cannot be loaded: line 3: Input has no field 'row_ids'. Did you mean 'row_id'?"
    assert message in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ('name="a", max_concurrency=1', "url must be given"),
        ('url="http://a"', "name, max_concurrency must be given"),
        ('"a", "http://a", 1', "its fields are given by their names, as in name=..."),
    ],
)
def test_a_missing_field_is_named_with_its_declaration_and_its_line(declare, capsys, given, fault):
    text = f"from tidegate import Service\n\nhere = Service({given})\n"
    assert main(["check", "--package", declare("lacking", text=text)]) == 2
    assert f"cannot be loaded: line 3: Service: {fault}." in capsys.readouterr().out


def test_check_and_a_run_refuse_a_database_of_verdicts_that_is_wrong(declare, capsys, monkeypatch):
    package = declare("moods")
    monkeypatch.setenv("TIDEGATE_QUALITY_URL", "data/quality.db")
    assert main(["check", "--package", package]) == 2
    fault = "verdicts: the database (TIDEGATE_QUALITY_URL) cannot store them: "
    assert f"WRONG   {fault}" in capsys.readouterr().out
    assert main(["run", "moods", "--package", package, "--day", "2013-01-10"]) == 2
    assert fault in capsys.readouterr().err


def test_a_wrong_value_is_named_with_the_file_and_the_line_that_declares_it(declare, capsys):
    wrong = "from tidegate import Tolerance\n\nof_all = Tolerance(error=5)\n"
    package = declare("shared", text=wrong)
    declare("reading", text=f"from {package}.shared import of_all\n")
    assert main(["check", "--package", package]) == 2
    reading, shared = capsys.readouterr().out.splitlines()
    assert f"loaded: {package}.shared, line 3: tolerance: error is 5; it is a share" in reading
    assert "cannot be loaded: line 3: tolerance: error is 5; it is a share of rows" in shared


def test_check_reports_a_missing_or_empty_package(declare, capsys):
    with pytest.raises(DeclarationError, match=r"no package 'nothing_here' here: .* Start the"):
        list(check_package("nothing_here"))
    assert main(["check", "--package", declare("empty", text="")]) == 2
    assert "holds no Enrichment" in capsys.readouterr().err


@pytest.mark.proof
def test_check_runs_as_a_python_module(project, weather_service):
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "check"], capture_output=True, text=True, check=False,
        cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flights_enriched               right   2013-01-10: 932 rows in ")
    assert (
        not (project / "weather_calls.jsonl").exists()
        or (project / "weather_calls.jsonl").read_text() == ""
    )


@pytest.mark.process
def test_check_reports_a_service_that_is_down_separately_from_wrong_declarations(
    declare, capsys, monkeypatch
):
    package = declare("asked", text=ASKED)
    declare("moods")
    with socket.socket() as taken:  # bound and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("CREDIT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert main(["check", "--package", package]) == 3
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(maxsplit=2)[:2] for line in lines] == [
            ["asked", "STOPS"],
            ["moods", "right"],
        ]
        assert "credit" in lines[0]
        declare("misspelt", column="orgin")
        assert main(["check", "--package", package]) == 2


ASKED = """
from tidegate import Enrichment, Env, HttpLookup, Input, Output, Service

rating = HttpLookup(
    name="rating", service=Service(name="credit", url=Env("CREDIT_URL"), max_concurrency=1), request="GET /{{k}}",
    keys={{"k": "origin"}}, returns="grade STRING", timeout=1.0,
)
asked = Enrichment(
    name="asked", input=Input(path="data/raw/flights"), lookups=[rating], output=Output(path="data/published/asked"),
)
"""
