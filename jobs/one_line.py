"""What others say, as it may stand in a column, in a sentence and on a terminal: one line, bounded, printable."""

from __future__ import annotations

LONGEST = 2_000  # characters of an error


def in_one_line(text: str, longest: int = LONGEST) -> str:
    """`text` on one line of at most about `longest` characters, control characters as escapes of Python's.

    Half a character, which no file can hold, becomes a question mark.
    """
    count = len(text)
    line = " ".join(text[: 4 * longest].encode("utf-8", "replace").decode().split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    if len(line) <= longest and count <= 4 * longest:
        return line
    return f"{line[:longest]}... ({count:,} characters)"
