"""Writes golden/format_<n>/: a small ledger of the format of today. Run once per format, never
again for an old one.
"""

from pathlib import Path

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.compaction import compact
from jobs.ledger.store import FORMAT, LedgerFolder

AT = 1_700_000_000_000_000
COMPACTED = [
    StoredAnswer('["JFK",1]', "ok", b'{"temp_c":3.9,"at":{"$date":"2013-01-10"}}', AT, "run-1"),
    StoredAnswer('["LGA",1]', "miss", None, AT + 1, "run-1"),
    StoredAnswer('["EWR",1]', "asked", None, AT + 2, "run-1"),
]
NEWER = [
    StoredAnswer('["JFK",1]', "ok", b'{"temp_c":4.0,"at":{"$date":"2013-01-11"}}', AT + 3, "run-2"),
    StoredAnswer('["EWR",1]', "error", b'"500 Internal Server Error"', AT + 4, "run-2"),
    StoredAnswer('["Z\u00fcrich",1]', "timeout", None, AT + 5, "run-2"),
    StoredAnswer('["LGA",1]', "expired", None, AT + 6, "run-2"),
]


def main() -> None:
    folder = LedgerFolder(
        str(Path(__file__).parent / "golden" / f"format_{FORMAT}"), "weather", "0123456789abcdef"
    )
    folder.write_part("run-1", "0-0-a1b2c3d4-00000", COMPACTED)
    compact(folder, now_us=AT + 10)
    folder.write_part("run-2", "0-0-a1b2c3d4-00000", NEWER)


if __name__ == "__main__":
    main()
