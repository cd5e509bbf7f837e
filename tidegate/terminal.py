"""Escapes what commands print, so that texts from outside cannot control the terminal."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from jobs.wording import printable

CLEAR_LINE = "\r\x1b[K"


class PrintableOutput:
    """A text stream whose `write` escapes control characters in every message."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def clear_line(self) -> None:
        self._stream.write(CLEAR_LINE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def clear_line(stream: TextIO) -> None:
    """Erase the last line of a terminal."""
    stream.clear_line() if isinstance(stream, PrintableOutput) else stream.write(CLEAR_LINE)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Escape everything that the body prints on stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (PrintableOutput(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
