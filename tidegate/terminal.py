"""Escapes what commands print, so that texts from outside cannot control the terminal."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from jobs.wording import printable

CLEAR_LINE = "\r\x1b[K"
RED, GREEN, YELLOW = 31, 32, 33


class PrintableOutput:
    """A text stream whose `write` escapes control characters in every message."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def control(self, sequence: str) -> None:
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def clear_line(stream: TextIO) -> None:
    """Erase the last line of a terminal."""
    _control(stream, CLEAR_LINE)


def write_coloured(stream: TextIO, text: str, colour: int | None) -> None:
    """Write a text, in a terminal in a colour unless NO_COLOR is set."""
    shown = colour and stream.isatty() and not os.environ.get("NO_COLOR")
    if shown:
        _control(stream, f"\x1b[{colour}m")
    stream.write(text)
    if shown:
        _control(stream, "\x1b[0m")


def _control(stream: TextIO, sequence: str) -> None:
    stream.control(sequence) if isinstance(stream, PrintableOutput) else stream.write(sequence)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Escape everything that the body prints on stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (PrintableOutput(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
