"""No text from outside commands the terminal: names, keys and errors are printed with control
characters escaped.
"""

import ast
import contextlib
import json
import os
import pty
import random
import shutil
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.process.day_events import DayResult, DayStage, DaysWarning
from jobs.wording import printable
from tidegate.__main__ import main
from tidegate.commands.days import tell
from tidegate.commands.lines import entry
from tidegate.commands.stages import Stages
from tidegate.terminal import PrintableOutput, printable_output

PIECES = (
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\r",
    "\b",
    "\x9b31m",
    "\u202e",
    "\x7f",
    "\udcff",
    "a",
    "é",
    "日",
    "\u2066",
)


def commands_a_terminal(text: str) -> list[str]:
    """The judge: by the Unicode categories of what is printed, without our pattern."""
    return [
        letter
        for letter in text
        if letter not in "\t\n" and unicodedata.category(letter) in ("Cc", "Cs", "Cf")
    ]


def odd_name(draw: random.Random) -> str:
    return "".join(draw.choices(PIECES, k=draw.randrange(1, 6)))


@pytest.mark.parametrize("rounds", [4, pytest.param(150, marks=pytest.mark.proof)])
def test_no_command_prints_a_control_character_of_a_name(project, demo_data, capsys, rounds):
    draw = random.Random(3)
    (project / "data/raw").unlink()
    shutil.copytree(
        demo_data / "raw/flights/date=2013-01-10", project / "data/raw/flights/date=2013-01-10"
    )
    folder = project / "data/raw/flights/date=2013-01-10"
    for _ in range(rounds):
        name = odd_name(draw)
        path = (
            folder
            / f"{name.encode('utf-8', 'surrogateescape').hex()[:8]}{name.replace('/', '')}.parquet"
        )
        path.write_bytes(b"not Parquet")
        for arguments in (
            ["check"], ["check", "--package", name], ["check", "--day", name], [name],
            ["run", name, "--day", name], ["plan", "flights", "--day", "2013-01-10"],
            ["try", "flights", "--day", name], ["forget", "weather", "--key", f"origin={name}"],
            ["forget", name, "--key-file", name], ["refresh", "weather", "--where", name],
            ["costs", "--month", name], ["pack", "p.zip", name],
            ["replay", name, "--day", "2013-01-10"], ["vacuum", name], ["compact", name],
            ["init", f"{name}/{name}"],
        ):  # fmt: skip
            with contextlib.suppress(SystemExit):  # argparse refuses
                main(arguments)
            printed = capsys.readouterr()
            assert commands_a_terminal(printed.out + printed.err) == [], arguments
        path.unlink()


def test_every_control_character_is_escaped_and_no_letter_changes():
    for number in (*range(0x3100), *range(0xD800, 0xE000)):
        letter, kind = chr(number), unicodedata.category(chr(number))
        if kind in ("Cc", "Cs") and letter not in "\t\n":
            escaped = printable(f"a{letter}b")
            assert escaped.isascii()
            assert ast.literal_eval(f'"{escaped}"') == f"a{letter}b"
        elif kind[0] in "LMNPS" or kind == "Zs":
            assert printable(letter) == letter
    assert printable("Zoë 日本 \t ok\n") == "Zoë 日本 \t ok\n"


@pytest.mark.parametrize("columns", [30, 60, 100])
def test_a_command_in_a_sentence_stays_on_a_line_from_which_it_can_be_copied(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    commands = [
        "`tidegate run flights --day 2013-01-10`",
        """`tidegate refresh weather --where "stored.outcome = 'asked'" --run`""",
    ]
    text = f"Fix the cause, then run it again: {commands[0]}, or else {commands[1]}. " * 3
    lines = entry("next: ", text, 2)
    assert sum(line.count(command) for line in lines for command in commands) == 6
    assert " ".join(" ".join(lines).split()) == f"next: {text.strip()}"
    assert all(len(line) <= columns for line in lines if "`" not in line)


def test_printed_json_stays_valid_json(capsys):
    texts = [chr(number) for number in range(0x3100)]
    with printable_output():
        print(json.dumps(texts, ensure_ascii=False))
    assert json.loads(capsys.readouterr().out) == texts


def test_the_line_of_a_running_day_is_still_updated_in_place(capsys):
    with printable_output():
        Stages(in_place=True).clear()
    assert capsys.readouterr().err == "\r\x1b[K"


@contextlib.contextmanager
def a_terminal(monkeypatch, columns):
    """What is printed in a terminal of so many columns, as a list with one text after the body."""
    master, slave = pty.openpty()
    printed = []
    with os.fdopen(slave, "w", encoding="utf-8") as stream, printable_output():
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, PrintableOutput(stream))
        monkeypatch.setenv("COLUMNS", str(columns))
        yield printed
        stream.write("\0")
        stream.flush()
        text = ""
        while not text.endswith("\0"):
            text += os.read(master, 1 << 16).decode()
        printed.append(text[:-1])
        monkeypatch.undo()
    os.close(master)


PROGRESS = {"kind": "progress", "unit": "rows", "rows": 30, "rows_total": 40, "rows_per_s": 2,
            "in_flight": 2, "left_s": 5}  # fmt: skip


def day_events(name):
    page = Path("data/reports") / name / "2013-01-10" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("<p>")
    yield DayStage("2013-01-10", "r1", "progress", PROGRESS)
    yield DayResult(
        "2013-01-10", "r1", "failed", "it is red\x1b[2J", record=SimpleNamespace(verdicts=())
    )


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_run_in_a_terminal_ends_in_colour_with_the_address_of_the_report(
    tmp_path, monkeypatch, no_color
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "tidegate.commands.days.line", lambda result: f"{result.day}  failed  {result.reason}"
    )
    monkeypatch.setattr("tidegate.commands.days.cost_so_far", lambda *run: f"1.20 USD of {run[0]}")
    monkeypatch.setenv("NO_COLOR", no_color)
    with a_terminal(monkeypatch, 200) as printed:
        assert tell("things", day_events("things")) == 1
    (text,) = printed
    word = "failed" if no_color else "\x1b[31mfailed\x1b[0m"
    assert f"2013-01-10  {word}  it is red\\x1b[2J\r\n" in text
    page = (tmp_path / "data/reports/things/2013-01-10/index.html").as_uri()
    assert text.endswith(f"report: {page}\r\n")
    assert "[###############     ] 30 of 40 rows (75%), 2 rows/s" in text
    assert "5 s left, 1.20 USD of r1" in text


def test_the_line_of_progress_is_never_longer_than_the_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with a_terminal(monkeypatch, 30) as printed:
        stages = Stages(in_place=True)
        stages.show(DayStage("2013-01-10", "r1", "progress", PROGRESS))
    assert printed == ["\r\x1b[K[###############     ] 30 of "]


def test_without_a_terminal_a_run_prints_no_colour_and_its_reports_path_to_stderr(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "tidegate.commands.days.line", lambda result: f"{result.day}  failed  {result.reason}"
    )
    with printable_output():
        tell("things", day_events("things"))
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "report:" not in printed.out
    assert printed.err.endswith("report: data/reports/things/2013-01-10/index.html\n")


def test_a_report_that_was_not_written_is_not_linked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tidegate.commands.days.line", lambda result: result.reason)
    tell("things", [*day_events("things"), DaysWarning("2013-01-10", "its report is not written")])
    assert "report:" not in capsys.readouterr().err
