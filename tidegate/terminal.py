"""Escapes what commands print, so that texts from outside cannot control the terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from jobs.wording import printable

CLEAR_LINE = "\r\x1b[K"
RED, GREEN, YELLOW = 31, 32, 33


class PrintableOutput:
    """A text stream whose `write` escapes control characters in every message."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._to_stream(self._stream.write, printable(text)))

    def flush(self) -> None:
        self._to_stream(self._stream.flush)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def control(self, sequence: str) -> None:
        self._to_stream(self._stream.write, sequence)

    def _to_stream(self, write: Callable[..., Any], *texts: str) -> Any:
        """Write; a reader who left or a full disk gets no further output, and the error a name."""
        try:
            return write(*texts)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            raise OSError(error.errno, error.strerror, self._stream.name) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed, for example by `2>&-`.

    Otherwise a file of the run would get the stream's number, and what libraries and Java print.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the stream's
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


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
