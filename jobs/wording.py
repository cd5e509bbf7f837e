"""How counts and foreign words stand in a sentence, in a column and on a terminal."""

from __future__ import annotations

LONGEST = 2_000  # characters of an error


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`. many: where an s at the end of `one` does not make it."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def one_line(text: str, longest: int = LONGEST) -> str:
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
