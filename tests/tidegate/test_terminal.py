"""No text from outside commands the terminal: names, keys and errors are printed with control
characters escaped.
"""

import contextlib
import random
import shutil
import unicodedata

import pytest

from jobs.wording import printable
from tidegate.__main__ import main
from tidegate.commands.stages import Stages
from tidegate.terminal import printable_output

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
            assert printable(f"a{letter}b") == f"a{ascii(letter)[1:-1]}b"
        elif kind[0] in "LMNPS" or kind == "Zs":
            assert printable(letter) == letter
    assert printable("Zoë 日本 \t ok\n") == "Zoë 日本 \t ok\n"


def test_the_line_of_a_running_day_is_still_updated_in_place(capsys):
    with printable_output():
        Stages(in_place=True).clear()
    assert capsys.readouterr().err == "\r\x1b[K"
