"""Records what Flink 2.3's WindowOperator does, for tests/jobs/run/test_flink_window_traces.py.

    make bench-flink ARGS="--work W1 --rows 100 --runs 1"   fetches Flink's jars; needs javac
    python benchmarks/record_windows.py      writes tests/jobs/run/flink/window_traces.jsonl

Each script of rows is a job in a mini cluster: a watermark follows each row, windows with Flink's
assigners, its event-time trigger, allowed lateness, and the side output for late data
(benchmarks/flink/WindowTraces.java).
"""

import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flink_beside import JARS, OPENED

SOURCE = Path(__file__).parent / "flink" / "WindowTraces.java"
TRACES = Path(__file__).parent.parent / "tests" / "jobs" / "run" / "flink" / "window_traces.jsonl"
WORKED = [
    ("pv", 0), ("cart", 1000), ("pv", 4000), ("pv", 5000), ("buy", 7000), ("buy", 3000),
    ("cart", 6000), ("buy", 8000), ("pv", 9000),
]  # fmt: skip


def scripts() -> Iterator[dict[str, Any]]:
    """Return named cases, then drawn cases."""
    for lateness in (0, 1000, 3000, 4999, 5000):
        yield script(
            f"worked example, lateness {lateness}", "tumbling", (5000, 5000, lateness, 0), WORKED
        )
    unkeyed = [("all", time) for _, time in WORKED]
    yield script("worked example, unkeyed", "tumbling", (5000, 5000, 0, 0), unkeyed)
    sessions = {
        "sessions that touch merge": [("a", 0), ("a", 5), ("a", 11)],
        "a row between two sessions makes them one": [("a", 0), ("a", 9), ("a", 4)],
        "a fired session grows by a late row": [("a", 0), ("a", 2), ("b", 9), ("a", 5), ("b", 30)],
        "a fired session takes a late row inside": [
            ("a", 0),
            ("a", 3),
            ("b", 9),
            ("a", 1),
            ("b", 30),
        ],
        "two fired sessions are merged by a late row": [
            ("a", 0),
            ("a", 8),
            ("b", 20),
            ("a", 4),
            ("b", 50),
        ],
        "a late row opens a session of its own": [("a", 0), ("b", 12), ("a", 6), ("b", 50)],
        "a row too late for any session": [("a", 30), ("a", 2), ("b", 31)],
    }
    for name, rows in sessions.items():
        for lateness in (0, 10):
            yield script(f"{name}, lateness {lateness}", "session", (5, 0, lateness, 0), rows)
    yield script(
        "times before the epoch",
        "sliding",
        (10, 4, 3, 2),
        [("a", -7), ("a", -1), ("a", 5), ("a", -9)],
    )
    edge = [("a", 0), ("a", 10), ("a", 9), ("a", 12), ("a", 9), ("a", 13), ("a", 9)]
    yield script("the last row that a window takes", "tumbling", (10, 10, 3, 0), edge)
    drawn = random.Random(20251124)
    for number in range(42):
        kind = ("tumbling", "sliding", "session")[number % 3]
        size = drawn.randint(3, 20)
        every = {"tumbling": size, "session": 0}.get(kind, drawn.randint(1, size))
        moment, rows = drawn.randint(-20, 20), []
        for _ in range(drawn.randint(15, 60)):
            moment += drawn.choice([0, 1, 1, 2, 5, 15])
            rows.append((drawn.choice("abc"), moment - drawn.choice([0, 0, 0, 1, 4, 12, 30])))
        lateness, bound = drawn.choice([0, 0, 2, 8, 25]), drawn.choice([0, 0, 3, 9])
        yield script(f"drawn {number}", kind, (size, every, lateness, bound), rows)


def script(
    name: str, kind: str, times: tuple[int, int, int, int], rows: list[tuple[str, int]]
) -> dict[str, Any]:
    """Return a script in the form of the traces.

    Args:
        name: The script's name.
        kind: The kind of window.
        times: Size, slide, allowed lateness and bound of the watermark, in ms.
        rows: Keys with their event times in ms.
    """
    named = dict(zip(("size_ms", "every_ms", "lateness_ms", "bound_ms"), times, strict=True))
    return {"name": name, "kind": kind, **named, "rows": rows}


def main() -> None:
    wanted = list(scripts())
    lines = [
        " ".join(
            [
                *(
                    str(one[name])
                    for name in ("kind", "size_ms", "every_ms", "lateness_ms", "bound_ms")
                ),
                *(f"{key}:{time}" for key, time in one["rows"]),
            ]
        )
        for one in wanted
    ]
    with tempfile.TemporaryDirectory(prefix="tidegate-flink-") as folder:
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{JARS}/*", "-d", folder, str(SOURCE)], check=True
        )
        opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        command = [
            "java",
            *opened,
            "-Dlog4j2.level=ERROR",
            "-Xmx1g",
            "-cp",
            f"{folder}:{JARS}/*",
            "WindowTraces",
        ]
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise SystemExit(f"Flink failed:\n{done.stderr[-3000:]}")
    traces = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    TRACES.parent.mkdir(exist_ok=True)
    TRACES.write_text(
        "".join(f"{json.dumps(one | seen)}\n" for one, seen in zip(wanted, traces, strict=True))
    )
    print(
        f"{TRACES}: {len(traces)} traces, {sum(len(trace['firings']) for trace in traces)} firings"
    )


if __name__ == "__main__":
    main()
