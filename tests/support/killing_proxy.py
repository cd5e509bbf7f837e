"""A proxy before the tests' S3 server, which counts requests. At one it kills who sends it, or
loses the answer.
"""

import contextlib
import http.client
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

ASKED = {"transfer-encoding", "content-length", "expect"}  # what the proxy says itself of the body
HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


class KillingProxy:
    """url: for AWS_ENDPOINT_URL. victim: the process."""

    def __init__(self, behind):
        self.behind = urlsplit(behind).netloc
        self.victim = None
        self._left = 0
        self._served = self._answers = self._cuts = False
        self._lock = threading.Lock()

    def kill_at(self, request, *, served):
        """The next victim is killed at its request of this number, from 1. served: after the store
        has done it.
        """
        self.victim, self._left, self._served, self._answers = None, request, served, False

    def lose_answer_of(self, request, *, cuts=False):
        """The store does the request of this number, from 1, and seems to be overloaded: 503
        SlowDown. cuts: the connection ends without an answer.
        """
        self._left, self._served, self._answers, self._cuts = request, True, True, cuts

    @property
    def reached(self):
        return self._left <= 0

    def _counted(self):
        """Whether the victim is killed at this request."""
        with self._lock:
            self._left -= 1
            return self._left == 0 if self._answers else self._left <= 0

    @classmethod
    @contextlib.contextmanager
    def running(cls, behind):
        proxy = cls(behind)
        with ThreadingHTTPServer(("127.0.0.1", 0), proxy.handler()) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            proxy.url = f"http://127.0.0.1:{server.server_port}"
            try:
                yield proxy
            finally:
                server.shutdown()

    def handler(proxy):  # noqa: N805  # self is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                at_its_end = proxy._counted()
                if at_its_end and not proxy._served:
                    return self.kill()
                body = b"".join(self.body())
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in ASKED
                }
                connection = http.client.HTTPConnection(proxy.behind, timeout=30)
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if at_its_end and proxy._answers:
                    return self.cut() if proxy._cuts else self.slow_down()
                if at_its_end:
                    return self.kill()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP or (
                        self.command == "HEAD" and name.lower() == "content-length"
                    ):
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return None

            def body(self):
                """As Arrow sends it, too: in pieces, of which each says its length in a line of its
                own.
                """
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    return
                while size := int(self.rfile.readline().partition(b";")[0], 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass

            do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

            def kill(self):
                while proxy.victim is None:
                    time.sleep(0.001)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(proxy.victim, signal.SIGKILL)
                self.close_connection = True

            def cut(self):
                self.close_connection = True

            def slow_down(self):
                self.send_response_only(503)
                text = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            def handle_one_request(self):
                with contextlib.suppress(OSError):  # of who is dead
                    super().handle_one_request()

            def log_message(self, *_):
                pass

        return Handler
