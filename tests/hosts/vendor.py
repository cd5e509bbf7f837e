"""A vendor on a host: GET /customers/{customer}/rating, also below the path of a key.

It writes a line for each call that it took.

python vendor.py ADDRESS PORT LATENCY LOG
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from aiohttp import web

GRADES = "ABC"


def rating(customer):
    """The answer for a customer, so that any reader of a table can judge it; None for an unknown
    customer.
    """
    number = int(customer[1:])
    return (
        None
        if number % 97 == 96
        else {"score": 500 + number % 300, "rating": {"grade": GRADES[number % 3]}}
    )


def main(address, port, latency, log):
    in_flight = 0

    async def answer(request):
        nonlocal in_flight
        in_flight += 1
        customer = request.match_info["customer"]
        call = {
            "customer": customer,
            "from": request.remote,
            "began": time.time(),
            "in_flight": in_flight,
        }
        try:
            await asyncio.sleep(latency)
            call["answered"] = True
        finally:
            in_flight -= 1
            lines.write(json.dumps(call | {"ended": time.time()}) + "\n")
        found = rating(customer)
        return web.json_response(
            {"error": "unknown"} if found is None else found, status=404 if found is None else 200
        )

    with Path(log).open("a", buffering=1) as lines:
        application = web.Application()
        for before in ("", "/{key}"):
            application.router.add_get(before + "/customers/{customer}/rating", answer)
        application.router.add_get("/", lambda _: web.Response(text="up"))
        web.run_app(
            application,
            host=address,
            port=port,
            print=None,
            access_log=None,
            handler_cancellation=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
