"""Lays out lines of text: columns of a table, and wrapped entries."""

import shutil
import textwrap
from collections.abc import Collection, Iterator, Sequence

from jobs.wording import one_line

WIDTH = 100  # characters of a line, at most


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

    Args:
        name: Stands before the text.
        text: The text.
        indent: Spaces before the name; further lines begin where the text does.
    """
    first = " " * indent + name
    return textwrap.wrap(
        one_line(text), line_width(), initial_indent=first, subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )  # fmt: skip
