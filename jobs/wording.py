"""Counts as a sentence has them."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`. many: where an s at the end of `one` does not make it."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"
