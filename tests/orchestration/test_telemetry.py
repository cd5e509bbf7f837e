"""OpenTelemetry by the recipe of docs/deploying.md, sent to a collector's address on loopback."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from demo.airflow import BIN  # Airflow's environment has OpenTelemetry's packages
from tests.support.documents import blocks

pytestmark = pytest.mark.process


class Collector(HTTPServer):
    """What it was sent: path, type and body of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.sent: list[tuple[str, str, bytes]] = []


class CollectorHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.sent.append((self.path, self.headers["Content-Type"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_) -> None:
        """Says nothing."""


def test_the_recipe_of_the_docs_sends_a_span_per_day_with_its_figures_and_a_failed_ones_reason():
    if not (BIN / "python").exists():
        pytest.skip(
            "there is no .venv-airflow here: make airflow, make test and make proof set it up"
        )
    (recipe, *_) = blocks("docs/deploying.md", "python", "OpenTelemetry")
    figures = {"rows": 10, "calls": 8, "cost": {"USD": 0.5}, "job_s": 1.5}
    days = [
        {
            "enrichment": "towns",
            "day": "2026-01-01",
            "state": "published",
            "reason": "",
            "figures": figures,
        },
        {
            "enrichment": "towns",
            "day": "2026-01-02",
            "state": "no input",
            "reason": "it has none.",
            "figures": None,
        },
    ]
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"
        }
        lines = "".join(f"{json.dumps(day)}\n" for day in days)
        subprocess.run(
            [BIN / "python", "-c", recipe],
            input=lines,
            env=environment,
            text=True,
            check=True,
            timeout=60,
        )
        collector.shutdown()
    ((path, kind, body),) = collector.sent
    assert (path, kind) == ("/v1/traces", "application/x-protobuf")
    for text in (
        "towns 2026-01-01",
        "tidegate.calls",
        "published",
        "towns 2026-01-02",
        "it has none.",
    ):
        assert text.encode() in body
