"""How the step reads what the Spark program reports: Dagster Pipes messages, one JSON line each, from a file."""

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pipes import PipesDefaultMessageWriter, PipesParams


class WholeLineReader(dg.PipesMessageReader):
    """Hands on a message only when its line is complete.

    Dagster's own reader of temporary files takes what is there: a long record, seen half written, ends its thread.
    """

    POLL = 0.1  # s

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[PipesParams]:
        with tempfile.TemporaryDirectory(prefix="tidegate-pipes-") as folder:
            path = Path(folder) / "messages"
            path.touch()
            ended = threading.Event()
            thread = threading.Thread(
                target=self._follow, args=(path, handler, ended), name="pipes-messages", daemon=True
            )
            thread.start()
            try:
                yield {PipesDefaultMessageWriter.FILE_PATH_KEY: str(path)}
            finally:
                ended.set()
                thread.join()

    def _follow(self, path: Path, handler: Any, ended: threading.Event) -> None:
        with path.open("rb") as file:
            rest, last_look = b"", False
            while not last_look:
                last_look = ended.wait(self.POLL)  # what was written before the end is read once more
                *lines, rest = (rest + file.read()).split(b"\n")
                for line in lines:
                    handler.handle_message(json.loads(line))

    @property
    def expected_writer_count(self) -> int:  # its default warns of being in preview
        return 1

    def no_messages_debug_text(self) -> str:
        return "The Spark program writes its messages to a temporary file."
