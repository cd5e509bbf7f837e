"""Writes the golden project anew, with the Tidegate of the Python that runs it: python write.py
<empty folder>.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST, SECOND = "2024-05-01", "2024-05-02"


class Service(http.server.BaseHTTPRequestHandler):
    """Weather of every town but number 3, which is none; orders of every number but 4, which it
    hangs up on.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = int(self.path.rpartition("-")[2])
        self._answer(
            {"temp_c": number + 0.5, "at": "2024-05-01T12:00:00Z"} if number != 3 else None
        )

    def do_POST(self) -> None:
        number = int(self.path.rpartition("/")[2])
        if number == 4:
            self.close_connection = True
            return
        self._answer({"ordered": number * 100})

    def _answer(self, message: object) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(404 if message is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def write_input(day: str, numbers: range) -> None:
    folder = Path(f"data/raw/towns/date={day}")
    folder.mkdir(parents=True)
    rows = {
        "number": pa.array(numbers, pa.int32()),
        "town": [f" town-{number} " for number in numbers],
    }
    pq.write_table(pa.table(rows), folder / "part-0.parquet")


def tidegate(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments, "--package", "declared"], check=True
    )


def mark_expired(town: str) -> None:
    from jobs.commands import expiry, ledgers
    from jobs.declare.finding.discovery import discover
    from jobs.ledger.keys import key_text

    (kept,) = ledgers.named(discover("declared"), "weather")
    expiry.expire_keys(kept.folder, [key_text((town,), hidden=False)])


def main() -> None:
    project = Path(sys.argv[1])
    shutil.copytree(Path(__file__).parent / "declared", project / "declared", dirs_exist_ok=True)
    os.chdir(project)
    sys.path.insert(0, str(project))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["GOLDEN_URL"] = f"http://127.0.0.1:{server.server_port}"
    write_input(FIRST, range(1, 9))
    write_input(SECOND, range(5, 13))
    tidegate("run", "declared.golden:towns", "--day", FIRST)
    tidegate("compact")
    tidegate("forget", "weather", "--key", "town=town-8")
    mark_expired("town-7")
    tidegate("run", "declared.golden:towns", "--day", SECOND)
    server.shutdown()


if __name__ == "__main__":
    main()
