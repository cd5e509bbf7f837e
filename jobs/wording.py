"""Counts and foreign texts in a sentence, a column or a terminal."""

LONGEST = 2_000  # characters of an error


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`. many: the plural, if it is not `one` with an s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def one_line(text: str, longest: int = LONGEST) -> str:
    """`text` on one line of at most about `longest` characters, with control characters escaped as in Python.

    A lone surrogate, which no file can hold, becomes a question mark.
    """
    count = len(text)
    line = " ".join(text[: 4 * longest].encode("utf-8", "replace").decode().split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    if len(line) <= longest and count <= 4 * longest:
        return line
    return f"{line[:longest]}... ({count:,} characters)"
