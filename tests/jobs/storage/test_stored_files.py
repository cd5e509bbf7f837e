"""The filesystem of a place, and the path in it."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.storage.stored_files import error_text, open_filesystem
from tests.support.s3_server import S3Server


@pytest.fixture
def gateway(monkeypatch):
    """A server that takes uploads of a told length only, as Ceph's gateway of version 16."""
    taken = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self):
            length = self.headers["Content-Length"]
            if length is not None:
                taken.append(self.rfile.read(int(length)))
            self.close_connection = True
            self.send_response(411 if length is None else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name, value in S3Server(url, None).environment().items():
            monkeypatch.setenv(name, value)
        # as set now, it is unset after the test
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "")
        monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION")
        yield taken
        server.shutdown()


@pytest.mark.parametrize(("place", "path"), [
    ("abfss://lake@account.dfs.core.windows.net/raw/orders", "lake/raw/orders"),
    ("gs://anonymous@lake/raw/orders", "lake/raw/orders"),
    ("gs://lake/raw/50%20 é", "lake/raw/50%20 é"),
])  # fmt: skip
def test_a_path_of_a_store_begins_with_the_bucket_name(place, path):
    assert open_filesystem(place)[1] == path


@pytest.mark.process
def test_an_upload_to_an_s3_compatible_server_has_a_content_length(gateway):
    filesystem, path = open_filesystem("s3://a-bucket-of-the-gateway/ledger/part.arrow")
    with filesystem.open_output_stream(path, compression=None) as stream:
        stream.write(b"answers")
    assert gateway == [b"answers"]


def test_the_text_of_an_error_has_no_backtrace_of_rust():
    error = ValueError("Kernel error: No protocol found\n   0: <unknown>\n   1: start_thread\n")
    assert error_text(error) == "Kernel error: No protocol found"
