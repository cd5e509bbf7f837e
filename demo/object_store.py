"""The demo on an object store: an S3 server on loopback (demo/s3.py), which holds the tables."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import IO

VARIABLE = "TIDEGATE_DEMO_STORE"
TABLE = "FLIGHTS_TABLE"  # of enrichments/flights.py
BUCKET = "tidegate-demo"
STARTS_WITHIN = 60.0  # s


def run_on_store(arguments: Sequence[str]) -> int:
    if os.environ[VARIABLE] != "s3":
        raise RuntimeError(f"{VARIABLE} is {os.environ[VARIABLE]!r}; it must be s3.")
    with s3_server() as url:
        bucket = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")  # noqa: S310
        urllib.request.urlopen(bucket, timeout=30).close()  # noqa: S310
        environment = {
            "AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true",
            TABLE: f"s3://{BUCKET}/published/flights_enriched", VARIABLE: "",
        }  # fmt: skip
        command = [sys.executable, "-m", "demo", *arguments]
        return subprocess.run(command, env=os.environ | environment, check=False).returncode  # noqa: S603


@contextlib.contextmanager
def s3_server(output: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[str]:
    """Yield a running server's address. output: gets its log. Raises RuntimeError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "demo.s3", str(port)]
    server = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + STARTS_WITHIN
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("moto's S3 server does not start; is `moto[s3]` installed?")
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url, timeout=5).close()  # noqa: S310
        return True
    return False
