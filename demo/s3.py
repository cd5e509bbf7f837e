"""An S3 server on loopback: moto, which here makes one change at a time.

    python -m demo.s3 PORT

moto looks whether an object is there and writes it in two steps. Of twenty clients that each write
an object only if it is not there, two could succeed, where S3 lets one succeed.
"""

import os
import sys
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple
from werkzeug.wsgi import get_input_stream

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

READS = ("GET", "HEAD")


def main(port: int) -> None:
    """Serve until the process is killed."""
    os.environ.setdefault("MOTO_PORT", str(port))
    moto = DomainDispatcherApplication(create_backend_app)
    answer = changing_one_at_a_time(moto)
    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=MotoRequestHandler)


def changing_one_at_a_time(server: "WSGIApplication") -> "WSGIApplication":
    """Return the server, which answers a request that changes objects after the one before it."""
    changing = threading.Lock()

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in READS:
            return server(environ, start_response)
        body = get_input_stream(environ).read()  # a client that is paused meanwhile stops no other
        environ |= {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        with changing:
            return [*server(environ, start_response)]

    return answer


if __name__ == "__main__":
    main(int(sys.argv[1]))
