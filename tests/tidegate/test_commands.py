"""What all commands have in common: how an enrichment and its days are named, and what a mistake
looks like.
"""

import argparse
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from enrichments.flights import flights
from jobs.errors import DeclarationError
from jobs.process.day_events import DayStage
from jobs.process.day_pipeline import DayResult
from jobs.schema.records import Billed, DayFacts, DayMetrics, DayRecord, LookupMetrics, Verdict
from tidegate.__main__ import main
from tidegate.commands import COMMANDS, GROUPS
from tidegate.commands.command import Command, add_days, add_enrichment, given_days, named
from tidegate.commands.days import line
from tidegate.commands.stages import Stages


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_enrichment(parser)
    add_days(parser)
    return parser.parse_args(
        ["flights", *arguments] if arguments[:1] != ("of",) else list(arguments[1:])
    )


@pytest.mark.parametrize("called", ["flights", "flights_enriched", "enrichments.flights:flights"])
def test_an_enrichment_is_found_by_name_file_or_reference(called):
    assert named(parsed("of", called)).enrichment.name == "flights_enriched"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package of enrichments, a name for each file; gives the package's name."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(**names):
        package = f"named_{abs(hash(str(tmp_path)))}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        for module, name in names.items():
            lines = ["import dataclasses", "from enrichments import flights"]
            lines.append(f"X = dataclasses.replace(flights.flights, name='{name}')")
            (tmp_path / package / f"{module}.py").write_text("\n".join(lines))
        return package

    return make


def test_the_name_of_an_enrichment_takes_precedence_over_the_file_name_of_another(package):
    declared = package(orders="rated", ratings="orders")
    options = parsed("of", "orders", "--package", declared)
    assert named(options)[0] == f"{declared}.ratings:X"


def test_a_name_of_two_enrichments_is_refused(package):
    declared = package(orders="rated", ratings="rated")
    with pytest.raises(
        DeclarationError,
        match=rf"named 'rated': {declared}\.orders:X, {declared}\.ratings:X; rename one\.",
    ):
        named(parsed("of", "rated", "--package", declared))


def test_output_of_a_declaration_does_not_mix_with_json_output(package, tmp_path, capsys):
    declared = package(orders="orders")
    file = tmp_path / declared / "orders.py"
    file.write_text(f"print('loading')\n{file.read_text()}")
    assert main(["ls", "--json", "--package", declared]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["enrichments"][0]["enrichment"] == "orders"
    assert printed.err == "loading\n"


def test_a_file_that_ends_the_program_as_it_is_loaded_is_named(package, tmp_path, capsys):
    declared = package(orders="orders")
    (tmp_path / declared / "once.py").write_text("raise SystemExit(0)")
    assert main(["status", "others", "--package", declared]) == 2
    assert f"{declared}.once cannot be loaded: line 1: SystemExit: 0" in capsys.readouterr().err


def test_a_broken_file_does_not_stop_enrichments_of_other_files(package, tmp_path):
    declared = package(orders="rated")
    (tmp_path / declared / "broken.py").write_text("1 / 0")
    for name in ("rated", "orders"):
        assert named(parsed("of", name, "--package", declared))[0] == f"{declared}.orders:X"
    with pytest.raises(DeclarationError, match=r"broken cannot be loaded: line 1: ZeroDivision"):
        named(parsed("of", "X", "--package", declared))  # broken.py may name its enrichment X


def test_an_unknown_enrichment_is_reported_with_the_known_names():
    with pytest.raises(
        DeclarationError,
        match=(
            r"no enrichment is named 'fligths'\. Did you mean 'flights'\? There are: "
            r".*flights_enriched"
        ),
    ):
        named(parsed("of", "fligths"))


def test_days_are_a_single_day_or_a_range_with_both_ends():
    assert given_days(parsed("--day", "2013-01-10"), flights) == ["2013-01-10"]
    assert given_days(parsed("--from", "2012-12-31", "--to", "2013-01-02"), flights) == [
        "2012-12-31",
        "2013-01-01",
        "2013-01-02",
    ]
    assert given_days(parsed("--from", "2013-01-10"), flights) == ["2013-01-10"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "2013-01-02"), "no day is given"),
        (("--day", "2013-01-02", "--to", "2013-01-02"), "write one or the other"),
        (
            ("--from", "2013-01-03", "--to", "2013-01-02"),
            "--to is 2013-01-02, before --from, 2013-01-03",
        ),
        (("--from", "2013-1-3"), "--from is '2013-1-3'; it must be a date"),
    ],
)
def test_wrong_days_and_ranges_are_refused(arguments, message):
    with pytest.raises(DeclarationError, match=message):
        given_days(parsed(*arguments), flights)


@pytest.mark.parametrize(
    ("cap", "message"), [("--max-cost=5", "max-cost is '5'"), ("--max-calls=-1", "max-calls is -1")]
)
def test_a_wrong_cap_is_refused_before_spark_starts(capsys, cap, message):
    assert main(["run", "flights", "--day", "2013-01-10", cap]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.out == ""


def test_an_unknown_argument_is_reported_with_the_known_arguments(capsys):
    with pytest.raises(SystemExit):
        main(["run", "flights", "--date", "2013-01-10"])
    message = capsys.readouterr().err
    assert "--day YYYY-MM-DD" in message
    assert message.endswith("tidegate run: error: unrecognized arguments: --date 2013-01-10\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "flights", "--day", "2013-01-10", "--where", ""),
        ("replay", "flights", "--where", "error", "--day="),
        ("show", "flights", " "),
        ("compact", ""),
        ("manifest", "--plugin", ""),
        ("forget", "weather", "--key", "town=a", ""),
    ],
)
def test_an_empty_value_of_any_argument_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2
    assert "the value is empty. Write one, or leave the argument out" in capsys.readouterr().err


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert re.fullmatch(r"tidegate \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_help_names_each_command_once(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    message = capsys.readouterr().out
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))
    assert all(name in message for name in COMMANDS)


@pytest.mark.process
def test_a_command_imports_no_other_command():
    """Each loads what it needs of Spark's driver, the checks and the tables."""
    code = """
import sys
from tidegate.__main__ import main
try:
    main(["explain", "--help"])
finally:
    loaded = {name for name in sys.modules if name.startswith(("tidegate.commands.", "jobs.run"))}
    sys.exit(str(loaded - {f"tidegate.commands.{n}" for n in ("command", "exit_status", "lines")}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "{'tidegate.commands.explain'}\n"


@pytest.mark.process
def test_a_second_ctrl_c_ends_a_command_without_a_further_word(tmp_path):
    (tmp_path / "moods.py").write_text("raise KeyboardInterrupt")
    code = """
import atexit, os, signal
from tidegate.__main__ import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
main(["check", "moods:moods"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr.startswith("Interrupted; ")
    assert (done.stderr.count("\n"), done.returncode) == (1, -signal.SIGINT)


@pytest.mark.process
@pytest.mark.parametrize(
    "start", [["-m", "tidegate"], [Path(sys.executable).with_name("tidegate")]]
)
def test_a_ctrl_c_while_python_imports_tidegate_shows_no_traceback(tmp_path, start):
    (tmp_path / "jsonpath.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, *start, "check"], env=os.environ | {"PYTHONPATH": str(tmp_path)},
        # a shell lets what it starts in the background ignore Ctrl-C
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_ctrl_c_while_a_command_loads_its_modules_shows_no_traceback(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("tidegate.__main__.load_command", interrupted)
    try:
        assert main(["check"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.startswith("Interrupted; ")


def test_an_error_of_the_disk_is_reported_in_one_sentence_and_a_bug_with_its_traceback(
    monkeypatch, capsys
):
    def fails(options):
        named = [] if options.number == errno.EBADF else ["data/reports"]
        raise OSError(options.number, "No space left on device", *named)

    def number(parser):
        parser.add_argument("number", type=int)

    monkeypatch.setitem(COMMANDS, "draw", "a report")
    monkeypatch.setattr("tidegate.__main__.load_command", lambda _: Command(number, fails))
    assert main(["draw", str(errno.ENOSPC)]) == 1
    assert capsys.readouterr().err == (
        "[Errno 28] No space left on device: 'data/reports'. Fix that, then run the same command "
        "again: it continues.\n"
    )
    with pytest.raises(OSError, match="No space"):
        main(["draw", str(errno.EBADF)])


FULL = (
    "[Errno 28] No space left on device: '<stdout>'. Fix that, then run the same command again: it "
    "continues.\n"
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("output", "status", "printed"),
    [
        (">&- 2>&-", 0, ""),
        ("2>&1 >/dev/full", 1, FULL),
    ],
)
def test_a_command_runs_with_its_output_closed_and_names_a_full_output(
    tmp_path, output, status, printed
):
    command = f"exec {shlex.quote(sys.executable)} -m tidegate costs {output}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (status, printed)


@pytest.mark.process
@pytest.mark.parametrize("command", ["check", "show nosuch --json"])
def test_a_command_with_a_closed_pipe_ends_with_the_status_of_a_shell(tmp_path, command):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tidegate", *command.split()]
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, cwd=tmp_path, env=buffered, stdout=writer, stderr=writer, check=False
    )
    os.close(writer)
    assert done.returncode == 141


def test_a_circle_of_links_is_reported_in_one_sentence(monkeypatch, capsys, tmp_path):
    (tmp_path / "a").symlink_to("a")

    def fails(options):
        if options.how == "resolve":
            (tmp_path / "a").resolve()
        raise OSError(errno.ELOOP, "Failed to open local file")  # as Arrow has it, or a new Python

    def how(parser):
        parser.add_argument("how")

    monkeypatch.setitem(COMMANDS, "draw", "a report")
    monkeypatch.setattr("tidegate.__main__.load_command", lambda _: Command(how, fails))
    for mode in ("resolve", "open"):
        assert main(["draw", mode]) == 1
        assert "Fix that, then run the same command again" in capsys.readouterr().err


def test_a_published_day_is_reported_with_its_unread_files():
    facts = DayFacts(
        flights.facts(), "2013-01-10", "r", (), (), "", (), (), "2026-11-20T02:15Z",
        "2026-11-20T02:16Z", unread=("e.parq", "late/"),
    )  # fmt: skip
    record = DayRecord(facts, DayMetrics(10, 10, 0, ()), state="published", published_version=3)
    assert line(DayResult("2013-01-10", "r", "published", "", record)).endswith(
        "version 3; not read: e.parq, late/"
    )


def test_a_published_day_is_reported_with_shared_answers_and_its_cost():
    weather = LookupMetrics(
        "weather", {"ok": 10}, 4, 0, 1.0, 1.0, None, None, from_ledger=1, shared=5,
        billed=Billed(4, 0, "item", "0.4000", "USD"),
    )  # fmt: skip
    facts = DayFacts(
        flights.facts(), "2013-01-10", "r", (), (), "", (), (), "2026-11-20T02:15Z",
        "2026-11-20T02:16Z",
    )  # fmt: skip
    figures = DayMetrics(10, 10, 0, (weather,))
    record = DayRecord(facts, figures, state="published", published_version=3)
    assert line(DayResult("2013-01-10", "r", "published", "", record)) == (
        "2013-01-10  published   10 rows, 4 calls (5 answers shared), 1 answer from the ledger; "
        "0.40 USD; version 3"
    )


def test_a_held_back_day_is_reported_with_check_report_and_next_command():
    weather = LookupMetrics("weather", {"ok": 1, "error": 9}, 10, 0, 1.0, 1.0, None, None)
    facts = DayFacts(
        flights.facts(),
        "2013-01-10",
        "r",
        (),
        (),
        "",
        (),
        (),
        "2026-11-20T02:15Z",
        "2026-11-20T02:16Z",
    )
    record = DayRecord(
        facts, DayMetrics(10, 10, 0, (weather,)), state="held back", reason="weather: 9 errors."
    )
    see = (
        "2013-01-10  held back   weather: 9 errors. See "
        "data/reports/flights_enriched/2013-01-10/index.html"
    )
    replayed = (
        "; once the cause is fixed, `tidegate replay flights_enriched --day 2013-01-10` calls again "
        "for 9 dead letters and nothing else"
    )
    for red, cure in (("weather__errors_tolerated", replayed), ("every_row_once", "")):
        held = replace(record, verdicts=(Verdict(red, "failed", "error", ""),))
        assert line(DayResult("2013-01-10", "r", held.state, held.reason, held)) == see + cure


EVENTS = (
    {"kind": "starting", "log": "data/runs/things/2013-01-10.log", "engine": "spark"},
    {},
    {"kind": "started", "rows_total": 4},
    *({"kind": "progress", "unit": unit, "rows": rows, "rows_total": 4, "rows_per_s": 0, "in_flight": 2,
       "p99_ms": None, "left_s": None} for unit, rows in (("keys", 1), ("keys", 2), ("rows", 3),
       ("rows", 4))),
    {"kind": "written"},
    {"kind": "checked"},
    {"kind": "deciding", "held_back": False},
)  # fmt: skip


def test_without_a_terminal_each_stage_of_a_day_is_printed_once(capsys):
    stages = Stages(in_place=False)
    for event in EVENTS:
        for _ in range(2):
            stages.show(DayStage("2013-01-10", "r1", event.get("kind", ""), event))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "2013-01-10  starting Spark, which logs to data/runs/things/2013-01-10.log",
        "2013-01-10  reading 4 rows",
        "2013-01-10  1 of 4 keys (25%), 2 in flight",
        "2013-01-10  3 of 4 rows (75%), 2 in flight",
        "2013-01-10  written; checking the files",
        "2013-01-10  checked",
        "2013-01-10  publishing",
    ]


def test_in_a_terminal_the_stages_of_a_day_update_one_line(capsys):
    stages = Stages(in_place=True)
    for event in EVENTS:
        stages.show(DayStage("2013-01-10", "r1", event.get("kind", ""), event))
    assert "\n" not in capsys.readouterr().err
