"""An S3 server of the tests' own on loopback: moto's, in a process of its own, since deltalake
holds the interpreter's lock while it waits for an answer.
"""

import contextlib
import os
import re
import tempfile
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyarrow import fs

from demo.object_store import s3_server

OTHER = "TIDEGATE_TEST_S3"
REQUEST = re.compile(r'"[^"]*?(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP')


@dataclass
class S3Server:
    """Where it listens, and what it was asked."""

    url: str
    log: Path
    bucket: str = ""

    @classmethod
    @contextlib.contextmanager
    def running(cls):
        """Or the server that TIDEGATE_TEST_S3 names, such as Ceph's radosgw: http://host:port,
        whose keys are "key" and "secret". That one does not tell what it was asked.
        """
        if OTHER in os.environ:
            yield cls(os.environ[OTHER], Path(os.devnull))
            return
        with tempfile.NamedTemporaryFile(prefix="tidegate-s3-") as log, s3_server(log) as url:
            yield cls(url, Path(log.name))

    def environment(self, **more):
        """As a user sets it."""
        keys = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        return keys | {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"} | more

    @classmethod
    @contextlib.contextmanager
    def refusing(cls, status, code, message):
        """A server that answers every request with this error."""

        class Refusing(BaseHTTPRequestHandler):
            def do_GET(self):
                text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield cls(f"http://127.0.0.1:{server.server_port}", Path())
            server.shutdown()

    def make_bucket(self, name):
        store = fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=self.url,
            allow_bucket_creation=True,
        )
        store.create_dir(name)

    def requests(self):
        """(method, path) of every request so far; ends the test where the server does not tell."""
        if OTHER in os.environ:
            pytest.skip("This server does not tell what it was asked.")
        return REQUEST.findall(self.log.read_text())
