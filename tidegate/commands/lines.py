"""Lays out lines of text: columns of a table, and wrapped entries."""

import re
import shutil
import textwrap
from collections.abc import Collection, Iterator, Sequence

from jobs.wording import one_line

WIDTH = 100  # characters of a line, at most
COMMAND = re.compile("`[^`]+`")  # in a sentence
SPACE = "\0"  # in a command while its text is wrapped; no printed line has the character


def line_width() -> int:
    """Return the width of the terminal, at most WIDTH; WIDTH without a terminal."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield the lines with their columns aligned: to the left, or to the right (by number)."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = enumerate(zip(line, widths, strict=True))
        yield "  ".join(
            text.rjust(width) if number in right else text.ljust(width)
            for number, (text, width) in cells
        ).rstrip()


def entry(name: str, text: str, indent: int) -> list[str]:
    """Return the wrapped text after its name; its further lines are indented.

    A command in backticks stays on a line, even a longer one, so that it can be copied.

    Args:
        name: Stands before the text.
        text: The text.
        indent: Spaces before the name; further lines begin where the text does.
    """
    first = " " * indent + name
    words = COMMAND.sub(lambda command: command[0].replace(" ", SPACE), one_line(text))
    lines = textwrap.wrap(
        words, line_width(), initial_indent=first, subsequent_indent=" " * len(first),
        break_on_hyphens=False, break_long_words=SPACE not in words,
    )  # fmt: skip
    return [line.replace(SPACE, " ") for line in lines]
