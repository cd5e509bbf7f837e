"""The time to list, copy and read the footers of a day of many wide files on a store.

    python benchmarks/many_files.py   1,000 files of 200 columns, 20 ms a request

The store is a server on loopback, in a separate process, that answers after that time.
"""

import asyncio
import itertools
import multiprocessing
import os
import socket
import tempfile
import time
from email.utils import formatdate

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from command_line import option_parser

from jobs.input import day as days
from jobs.input.staged_files import staged
from tidegate import Input

DAY, CHANGED = "2026-01-01", 1_767_225_600  # s since the epoch
PREFIX = f"raw/date={DAY}/"


def serve(port: int, body: bytes, files: int, latency: float) -> None:
    """Serve a file under many names."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(CHANGED))
    entry = (
        f"<Contents><Key>{PREFIX}{{:05}}.parquet</Key><LastModified>{moment}</LastModified><ETag>&quot;e&quot;</ETag>"
        f"<Size>{len(body)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )
    head = (
        '<?xml version="1.0"?><ListBucketResult '
        'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>'
    )
    names = "".join(map(entry.format, range(files)))
    listing = (
        f"{head}<KeyCount>{files}</KeyCount><IsTruncated>false</IsTruncated>{names}"
        "</ListBucketResult>"
    )
    facts = {
        "ETag": '"e"',
        "Last-Modified": formatdate(CHANGED, usegmt=True),
        "Accept-Ranges": "bytes",
    }

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(latency)
        if "list-type" in request.query:
            return web.Response(text=listing, content_type="application/xml")
        if request.method == "HEAD":
            return web.Response(headers=facts | {"Content-Length": str(len(body))})
        if asked := request.http_range if "Range" in request.headers else None:
            part = body[asked]
            start = asked.start if asked.start >= 0 else len(body) + asked.start
            span = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(body)}"}
            return web.Response(status=206, body=part, headers=facts | span)
        return web.Response(body=body, headers=facts)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


def wide(columns: int, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(
        {f"column_{number:03}": pa.array(range(rows), pa.int64()) for number in range(columns)}
    )
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def main() -> None:
    options = option_parser(__doc__, files=1_000, columns=200, latency=0.02, runs=3).parse_args()
    body = wide(options.columns, 10)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (port, body, options.files, options.latency)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
    server.start()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    declared = Input(path="s3://bucket/raw")
    print(
        f"{options.files} files of {options.columns} columns, {len(body):,} bytes each, "
        f"{options.latency * 1e3:g} ms"
    )
    print("  listed  copied  footers     all     CPU")
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            times, used = [time.perf_counter()], time.process_time()
            listed = days.files_in(declared, DAY)
            times.append(time.perf_counter())
            files = staged(listed, declared, folder, hidden=False)
            times.append(time.perf_counter())
            found = days.of_files(files)
            times.append(time.perf_counter())
        assert found.rows == 10 * options.files
        steps = [after - before for before, after in itertools.pairwise(times)]
        used = time.process_time() - used
        print("".join(f"{one:8.2f}" for one in (*steps, times[-1] - times[0], used)), flush=True)


if __name__ == "__main__":
    main()
