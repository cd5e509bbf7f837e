"""`tidegate try`: real calls for a few rows, against a real service and a real database."""

import datetime as dt
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from pyspark.logger import PySparkLogger

from tidegate.__main__ import main

DECLARED = """
from dataclasses import replace
from datetime import timedelta
from asyncio_core import AsyncFunction
from tidegate import (
    AsyncFunctionLookup, Batch, Bearer, Enrichment, Env, HttpLookup, Input, Ledger, Output, Pages, Retry, Service,
    SqlLookup, jobs, lookup
)

service = Service(name="geo", url=Env("GEO_URL"), max_concurrency=2, auth=Bearer(Env("GEO_TOKEN")))
place = HttpLookup(
    name="place", service=service, request="GET /places/{q}", keys={"q": "Address"},
    returns="lat DOUBLE, kind STRING", timeout=5.0, retry=Retry(retries=2, initial_delay=0.01),
)
plane = SqlLookup(
    name="plane", url="sqlite+aiosqlite:///planes.db", table="planes", keys={"tailnum": "`tailnum`"},
    returns="seats INT", timeout=5.0, max_concurrency=2,
)
batched = HttpLookup(
    name="together", service=service, request="POST /batch", keys={"q": "address"}, returns="x DOUBLE", timeout=5.0,
    batch=Batch(max_items=3, max_wait=0.05, item={"id": "{id}", "q": "{q}"}, match="$.id"),
)

@lookup(service=service, keys={"q": "address"}, returns="words INT", timeout=5.0)
async def counted(row, http):
    answer = await http.post("/count", json={"text": row.q})
    return {"words": answer["words"]}

@lookup(service=service, keys={"q": "address"}, returns="words INT", timeout=5.0)
async def silent(row, http):
    return {"words": 1}

@jobs(service=service, keys={"q": "address"}, returns="x INT", recovery="token", max_items=9, give_up=timedelta(hours=1))
class Scored:
    async def submit(self, items, token, http): ...
    async def state(self, job, http): ...
    async def results(self, job, http): yield

class Doubled(AsyncFunction):
    async def async_invoke(self, value):
        return [{"doubled": 2 * len(value["tailnum"])}]

function = AsyncFunctionLookup(
    name="function", function=Doubled, keys={"tailnum": "tailnum"}, returns="doubled INT", timeout=5.0,
    max_concurrency=2,
)

def enrichment(name, *lookups, **fields):
    return Enrichment(
        name=name, input=Input(path="raw", row_id=["number"]), lookups=lookups, output=Output(path="out"), **fields
    )

places = enrichment("places", place)
planes = enrichment("planes", plane)
both = enrichment("both", place, plane)
coroutine = enrichment("coroutine", counted)
without_calls = enrichment("without_calls", silent)
functions = enrichment("functions", function)
batches = enrichment("batches", batched)
personal = enrichment("personal", place, pii=["address"])
paged = enrichment("paged", replace(place, pages=Pages(next="$.nxt", max_pages=3)))
acting = enrichment("acting", replace(place, idempotent=False, retry=Retry(retries=0)))
other = HttpLookup(
    name="other", service=service, request="GET /{q}", keys={"q": "regexp_replace(address, 'r.*', 'X')"},
    returns="lat DOUBLE", timeout=5.0,
)
expression = enrichment("expression", plane, other)
with_jobs = enrichment("with_jobs", place, Scored, ledger=Ledger("ledger"))
failing = enrichment("failing", replace(other, keys={"q": "cast(address AS int)"}))
personal_failing = replace(failing, name="personal_failing", pii=["address"])
refused = enrichment("refused", plane, replace(other, keys={"q": "no_such_function(address)"}))
"""
ADDRESSES = ["main st", "nowhere", "broken", None, "main st", "echo"]
SECRET = "s3cr3t-Zq9"


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    """A project with two days of input, a database, a declaration per test, and a service."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for one line each
    (tmp_path / "declared_for_trial.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "declared_for_trial", raising=False)
    monkeypatch.setenv("GEO_URL", service.url)
    monkeypatch.setenv("GEO_TOKEN", SECRET)
    for day in ("2013-01-09", "2013-01-10"):
        folder = tmp_path / "raw" / f"date={day}"
        folder.mkdir(parents=True)
        for number in range(2):  # the first three rows in one file, the others in the next
            rows = {
                "number": [3 * number + row for row in range(3)],
                "address": pa.array(ADDRESSES[3 * number : 3 * number + 3], pa.string()),
                "tailnum": ["N1", "N2", "N9"],
                "at": [dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)] * 3,
            }
            pq.write_table(pa.table(rows), folder / f"part-{number}.parquet")
    with sqlite3.connect("planes.db") as planes:
        planes.executescript(
            "CREATE TABLE planes (tailnum, seats); INSERT INTO planes VALUES ('N1', 149), ('N2', 4)"
        )
    planes.close()
    service.answer = answering
    return tmp_path


async def answering(request):
    what = request.path.rpartition("/")[2]
    if what == "count":
        return web.json_response({"words": len((await request.json())["text"].split())})
    if what == "batch":
        return web.json_response(
            [{"id": item["id"], "x": len(item["q"])} for item in await request.json()]
        )
    if what == "echo":
        return web.json_response({"lat": 1.5, "kind": request.headers["Authorization"]})
    status = {"nowhere": 404, "broken": 500}.get(what, 200)
    return web.json_response({"lat": 40.6, "kind": "street"}, status=status)


def lines_of(printed):
    return [line.strip() for line in printed.splitlines() if line.strip()]


def test_try_shows_request_and_answer_with_outcome_attempts_and_latency(project, service, capsys):
    assert main(["try", "declared_for_trial:places"]) == 1  # one row ended as an error
    printed = capsys.readouterr().out
    lines = lines_of(printed)
    assert lines[0] == f"place  (geo, {service.url.removeprefix('http://')})   6 rows of 2013-01-10"
    assert lines[1] == "1  q=main st"
    assert f"GET {service.url}/places/main%20st" in printed
    assert '| 200 {"lat": 40.6, "kind": "street"}' in printed
    assert any(
        line.startswith("ok  1 attempt  ") and line.endswith("ms  lat=40.6  kind=street")
        for line in lines
    )
    assert any(line.startswith("miss  1 attempt  ") for line in lines)
    assert any(
        line.startswith("error  3 attempts  ") and "500 Internal Server Error: " in line
        for line in lines
    )
    assert lines[lines.index("4  q=null") + 1] == "skipped"
    assert lines[lines.index("5  q=main st") + 1] == "the answer of an equal row"
    assert lines[-1].startswith(
        "6 rows: 3 ok, 1 miss, 1 error, 1 skipped; 1 had the answer of an equal row; median answer"
    )
    assert Counter(service.log)["/places/main%20st"] == 1
    assert Counter(service.log)["/places/broken"] == 3
    assert service.highest_in_flight <= 2


@pytest.mark.parametrize("code", [200, 400])
def test_control_characters_of_an_answer_do_not_reach_the_terminal(project, service, capsys, code):
    async def attacks(request):
        return web.Response(
            body=b'{"kind": "\\u001b[2Jred", "why": "\\u202e", "x": "\x7f\xc2\x9b"}', status=code
        )

    service.answer = attacks
    main(["try", "declared_for_trial:places"])
    printed = capsys.readouterr().out
    assert all(letter == "\n" or letter.isprintable() for letter in printed)
    assert "u001b[2Jred" in printed


@pytest.mark.parametrize("code", [200, 400, 403])
def test_a_token_in_the_path_of_an_address_in_the_environment_is_not_shown(
    project, service, capsys, monkeypatch, code
):
    async def repeats(request):
        return web.json_response(
            {"kind": request.path, "why": f"no t0k3n-of-ours at {request.url}"}, status=code
        )

    service.answer = repeats
    monkeypatch.setenv("GEO_URL", service.url + "/v1/t0k3n-of-ours")
    main(["try", "declared_for_trial:places"])
    printed = capsys.readouterr()
    assert service.log[0] == "/v1/t0k3n-of-ours/places/main%20st"
    assert service.url.removeprefix("http://") in printed.out
    assert "t0k3n" not in printed.out + printed.err


# the second is longer than a value is shown
@pytest.mark.parametrize("secret", [SECRET, 20 * SECRET])
def test_try_masks_secrets_even_where_the_service_repeats_them(
    project, capsys, monkeypatch, secret
):
    monkeypatch.setenv("GEO_TOKEN", secret)
    main(["try", "declared_for_trial:places"])
    printed = capsys.readouterr()
    assert "kind=Bearer ***" in printed.out
    assert SECRET not in printed.out + printed.err


@pytest.mark.proof
def test_try_with_discard_writes_nothing_and_loads_neither_spark_nor_dagster(project, service):
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    code = (
        "import sys; from tidegate.__main__ import main; status = main(['try', "
        "'declared_for_trial:both', '--discard']); print([name for name in ('pyspark', 'py4j', "
        "'dagster', 'great_expectations') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True, cwd=project
    )
    assert lines_of(done.stdout)[-1] == "[]"
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*")} == before


def test_try_stores_its_answers_and_the_next_try_does_not_call_again(project, service, capsys):
    assert main(["try", "declared_for_trial:places", "--rows", "3"]) == 1
    assert Counter(service.log) == {
        "/places/main%20st": 1, "/places/nowhere": 1, "/places/broken": 3,
    }  # fmt: skip
    capsys.readouterr()
    service.log.clear()
    assert main(["try", "declared_for_trial:places", "--rows", "3"]) == 1
    assert Counter(service.log) == {"/places/broken": 3}, "errors are not stored"
    lines = lines_of(capsys.readouterr().out)
    assert lines[1:4] == [
        "1  q=main st", "the stored answer, without a call", "ok  lat=40.6  kind=street",
    ]  # fmt: skip
    assert lines[4:7] == ["2  q=nowhere", "the stored answer, without a call", "miss"]
    service.log.clear()
    assert main(["try", "declared_for_trial:places", "--rows", "3", "--discard"]) == 1
    assert Counter(service.log)["/places/main%20st"] == 1


def test_try_doubts_the_address_when_every_row_is_a_miss(project, service, capsys):
    async def unknown(request):
        return web.json_response({}, status=404)

    service.answer = unknown
    assert main(["try", "declared_for_trial:places", "--rows", "2"]) == 0
    printed = capsys.readouterr().out
    assert "2 rows: 2 miss" in printed
    assert "is the address right, and the request?" in " ".join(printed.split())


def test_try_names_a_column_that_no_answer_has(project, service, capsys):
    async def misnamed(request):
        return web.json_response({"latitude": 40.6, "kind": "street"})

    service.answer = misnamed
    assert main(["try", "declared_for_trial:places", "--rows", "2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 rows: 2 ok" in printed
    assert "null in every answer: lat; is the name or the path right?" in printed


def test_try_doubts_the_path_of_the_next_page_when_all_answers_have_one_page(project, capsys):
    assert main(["try", "declared_for_trial:paged", "--rows", "2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "no answer had a second page: does $.nxt find the next one?" in printed


def test_options_of_try_choose_rows_day_and_lookup(project, service, capsys):
    wanted = ["--rows", "4", "--day", "2013-01-09", "--lookup", "plane"]
    assert main(["try", "declared_for_trial:both", *wanted]) == 0
    printed = capsys.readouterr().out
    lines = lines_of(printed)
    assert lines[0] == (
        "plane  (plane database, sqlite+aiosqlite:///planes.db)   4 rows of 2013-01-09"
    )
    assert "SELECT planes.seats FROM planes" in printed
    assert "['N1']" in printed
    assert "[{'seats': 149}]" in printed
    assert lines[-1].startswith("4 rows: 3 ok, 1 miss; 1 had the answer of an equal row")
    assert service.log == []


def test_try_shows_the_requests_of_a_coroutine(project, capsys):
    (project / "raw" / "date=2013-01-10" / "part-1.parquet").unlink()
    assert main(["try", "declared_for_trial:coroutine"]) == 0
    printed = capsys.readouterr().out
    assert "/count" in printed
    assert '{"text":"main st"}' in printed
    assert '| 200 {"words": 2}' in printed


def test_try_shows_that_a_coroutine_sent_no_request(project, capsys):
    assert main(["try", "declared_for_trial:without_calls", "--rows", "1"]) == 0
    assert "no request was made" in capsys.readouterr().out


def test_try_shows_a_function_with_its_keys_and_its_result(project, capsys):
    assert main(["try", "declared_for_trial:functions", "--rows", "1"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert lines[2].startswith("Doubled.async_invoke {'tailnum': 'N1'}")
    assert lines[2].endswith("| [{'doubled': 4}]")


def test_try_shows_a_batch_request_at_the_row_that_sent_the_request(project, service, capsys):
    (project / "raw" / "date=2013-01-10" / "part-1.parquet").unlink()
    assert main(["try", "declared_for_trial:batches"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(f"POST {service.url}/batch") == 1
    assert printed.count("asked in a request with other rows") == 2
    assert "x=7.0" in printed


def test_try_shows_personal_keys_and_their_requests_only_on_demand(project, capsys):
    main(["try", "declared_for_trial:personal"])
    printed = capsys.readouterr().out
    assert "q=***" in printed
    assert "1 request, not shown: its keys are personal" in printed
    assert "main" not in printed.lower()
    main(["try", "declared_for_trial:personal", "--show-personal", "--discard"])
    assert "places/main%20st" in capsys.readouterr().out


@pytest.mark.proof
@pytest.mark.spark
def test_a_key_expression_starts_spark_with_a_line_on_stderr(project, service):
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "try",
        "declared_for_trial:expression",
        "--rows",
        "3",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=project)
    assert done.stderr == "starting Spark to evaluate keys.q: regexp_replace(address, 'r.*', 'X')\n"
    assert done.returncode == 0
    assert sorted(service.log) == ["/bX", "/main%20st", "/nowheX"]
    assert "q=nowheX" in done.stdout
    assert "[{'seats': 149}]" in done.stdout


@pytest.mark.parametrize("name", ["expression", "failing"])
def test_a_key_expression_without_java_is_refused_before_the_first_call(
    project, service, monkeypatch, capsys, name
):
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    # another test's may be there
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    assert main(["try", f"declared_for_trial:{name}"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "Spark needs Java 17 or newer: JAVA_HOME is /no/java, which has no bin/java. "
        "TIDEGATE_ENGINE=local runs days without it. Nothing was called.\n"
    )
    assert service.log == []


@pytest.fixture
def quiet(spark, monkeypatch):
    """The session of the tests, as silent as one that the command starts."""
    monkeypatch.setattr(PySparkLogger.getLogger("SQLQueryContextLogger"), "disabled", True)


@pytest.mark.spark
@pytest.mark.usefixtures("project", "quiet")
def test_a_key_expression_is_evaluated_by_spark(service, capsys):
    assert main(["try", "declared_for_trial:expression", "--rows", "3"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert sorted(service.log) == ["/bX", "/main%20st", "/nowheX"]
    assert "q=nowheX" in printed.out
    assert "[{'seats': 149}]" in printed.out


@pytest.mark.spark
@pytest.mark.usefixtures("project", "quiet")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("failing", "Spark could not evaluate the keys: .*'main st'.*"),
        (
            "personal_failing",
            "Spark could not evaluate the keys of these rows. .* --show-personal shows it.",
        ),
        ("personal_failing --show-personal", "Spark could not evaluate the keys: .*'main st'.*"),
        ("refused", "refused: keys: Spark refuses them: .*`no_such_function`.*"),
    ],
)
def test_a_key_that_spark_cannot_evaluate_is_refused_before_the_first_call(
    service, capsys, arguments, error
):
    assert main(["try", *f"declared_for_trial:{arguments}".split()]) == (
        2 if arguments == "refused" else 1
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(error, printed.err.removesuffix("\n"))
    assert service.log == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "0"], "--rows is 0; it must be a whole number, at least 1."),
        (["--lookup", "plaec"], "both has no lookup 'plaec'. It has: place, plane."),
        (["--day", "2013-01-11"], "there is no raw/date=2013-01-11 for 2013-01-11"),
        (["--day", "yesterday"], "--day is 'yesterday'; it must be a date, such as 2013-01-10."),
    ],
)
def test_a_declaration_that_cannot_be_tried_is_refused_in_one_sentence(
    project, arguments, message, capsys
):
    assert main(["try", "declared_for_trial:both", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acting", "idempotent=False: a run could not know of the calls that are made here"),
        ("with_jobs", "lookup scored: a preview submits no jobs, as it cannot wait for them"),
    ],
)
def test_a_declaration_that_cannot_be_tried_is_refused_before_the_first_call(
    project, service, capsys, name, message
):
    assert main(["try", f"declared_for_trial:{name}"]) == 2
    assert message in capsys.readouterr().err
    assert service.log == []


def test_a_refusal_of_the_service_is_reported_after_the_rows_before(project, service, capsys):
    async def refusing(request):
        return web.json_response({}, status=403)

    service.answer = refusing
    assert main(["try", "declared_for_trial:places"]) == 3
    assert capsys.readouterr().err == (
        f"geo at {service.url} denies access: 403 Forbidden. Its secrets are read from GEO_TOKEN, "
        "in the environment or .env.\n"
    )


def test_try_takes_the_first_rows_of_the_first_files(project):
    from jobs.commands.previewing.preview import first_rows
    from jobs.input.day import of_files

    day = of_files(sorted(Path("raw/date=2013-01-10").iterdir()))
    assert first_rows(day, 2).column("number").to_pylist() == [0, 1]
    assert first_rows(day, 4).column("number").to_pylist() == [0, 1, 2, 3]
    assert first_rows(day, 100).column("number").to_pylist() == [0, 1, 2, 3, 4, 5]


def test_files_of_a_day_may_have_other_columns_than_the_first_one(project, service, capsys):
    second = Path("raw/date=2013-01-10/part-1.parquet")
    rows = pq.read_table(second)
    changed = rows.append_column("more", rows["number"]).set_column(
        0, "NUMBER", rows["number"].cast("int32")
    )
    pq.write_table(changed.drop_columns("at"), second)
    assert main(["try", "declared_for_trial:places", "--day", "2013-01-10"]) == 1
    assert "6 rows: 3 ok, 1 miss" in capsys.readouterr().out
    pq.write_table(changed.set_column(1, "address", pa.array([[1]] * 3)), second)
    assert main(["try", "declared_for_trial:places", "--day", "2013-01-10"]) == 2
    message = capsys.readouterr().err
    assert (
        f"input: 'address' is string in {second.with_name('part-0.parquet')}, but list<item: "
        f"int64> in {second}" in message
    )


def test_a_file_whose_values_are_damaged_is_named_before_the_first_call(project, service, capsys):
    file = Path("raw/date=2013-01-10/part-0.parquet")
    data = bytearray(file.read_bytes())
    data[4:200] = bytes(196)
    file.write_bytes(data)
    assert main(["try", "declared_for_trial:places", "--day", "2013-01-10"]) == 1
    assert "raw/date=2013-01-10/part-0.parquet cannot be read: " in capsys.readouterr().err
    assert service.log == []


@pytest.mark.proof
def test_try_ends_silently_when_its_output_is_closed(project):
    command = [sys.executable, "-m", "tidegate", "try", "declared_for_trial:places"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as trying:
        trying.stdout.close()
        assert trying.stderr.read() == ""
    assert trying.returncode == 141
