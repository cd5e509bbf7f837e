"""Coroutines and databases asked by real Spark tasks: what travels to the executors, and limits
over all of them.
"""

import asyncio
import socket
import threading

import pytest
from aiohttp import web
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from tidegate import (
    Enrichment,
    Env,
    HttpLookup,
    Input,
    OAuth2ClientCredentials,
    Output,
    Service,
    SqlLookup,
)

pytestmark = pytest.mark.spark
DECLARED = """
from tidegate import Service, lookup

@lookup(service=Service(name="shared", url="SHARED_URL", max_concurrency=4), keys={"number": "id"},
        returns="doubled BIGINT", timeout=30.0)
async def doubling(row, http):
    answer = await http.post("/double", json={"n": row.number})
    return None if answer["n"] == 0 else {"doubled": answer["n"]}
"""


def enrichment(*lookups):
    return Enrichment(
        name="things",
        input=Input(path="raw", row_id=["id"]),
        lookups=list(lookups),
        output=Output(path="out"),
    )


@pytest.mark.proof
def test_a_coroutine_is_sent_by_its_name_and_shares_the_limit_of_its_service(
    spark, service, tmp_path, monkeypatch, enrich
):
    (tmp_path / "doubling_declared.py").write_text(DECLARED.replace("SHARED_URL", service.url))
    spark.sparkContext.addPyFile(str(tmp_path / "doubling_declared.py"))  # as --py-files does
    monkeypatch.syspath_prepend(tmp_path)

    async def answer(request):
        await asyncio.sleep(0.01)
        if request.method == "POST":
            return web.json_response({"n": 2 * (await request.json())["n"]})
        return web.json_response({"x": 1})

    service.answer = answer
    from doubling_declared import doubling

    other = HttpLookup(
        name="other",
        service=doubling.service,
        request="GET /x/{k}",
        keys={"k": "id"},
        returns="x INT",
        timeout=30.0,
    )
    rows = enrich(spark.range(0, 60, 1, 2), enrichment(doubling, other)).collect()
    assert {
        row["id"]: (row["doubling_status"], row["doubled"], row["other_status"]) for row in rows
    } == {number: ("ok" if number else "miss", 2 * number or None, "ok") for number in range(60)}
    assert len(service.log) == 120
    assert 2 <= service.highest_in_flight <= 4


@pytest.fixture
def refusing_in_latin_1():
    """The address of a service that refuses every request with a word that is no UTF-8."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(
                        ("HTTP/1.1 403 Acc\xe8s refus\xe9\r\nContent-Length: 0\r\n\r\n").encode(
                            "latin-1"
                        )
                    )

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_refusal_with_a_body_that_is_not_utf_8_ends_the_run_with_a_message(
    spark, refusing_in_latin_1, enrich
):
    asked = Service(name="s", url=refusing_in_latin_1, max_concurrency=4)
    refused = HttpLookup(
        name="x", service=asked, request="GET /{k}", keys={"k": "id"}, returns="x INT", timeout=30.0
    )  # fmt: skip
    with pytest.raises(
        (PythonException, Py4JJavaError),
        match=(
            r"AccessRefused: s at .* denies access: 403 Acc\?s "
            r"refus\?\."
        ),
    ):
        enrich(spark.range(0, 10, 1, 2), enrichment(refused))


@pytest.mark.proof
def test_keys_of_many_rows_go_together_to_a_database_from_every_task(
    spark, postgres, wait_for, tmp_path, enrich
):
    database = postgres.new_database()
    postgres.execute(
        "CREATE TABLE squares (n BIGINT PRIMARY KEY, square BIGINT);"
        "INSERT INTO squares SELECT n, n * n FROM generate_series(1, 500) AS n",
        database,
    )
    address = f"{postgres.user}@{postgres.host}:{postgres.port}"
    passwords = tmp_path / "passwords"
    passwords.write_text(
        f"{postgres.host}:{postgres.port}:{database}:{postgres.user}:{postgres.password}"
    )
    passwords.chmod(0o600)
    squares = SqlLookup(
        name="squares",
        # no variable gets to started workers
        url=f"postgresql+asyncpg://{address}/{database}?passfile={passwords}",
        table="squares",
        keys={"n": "id"},
        returns="square BIGINT",
        timeout=30.0,
        max_concurrency=2,
        batch_size=100,
    )
    rows = enrich(spark.range(0, 1000, 1, 2), enrichment(squares)).collect()
    assert {row["id"]: row["square"] for row in rows} == {
        n: n * n if 1 <= n <= 500 else None for n in range(1000)
    }
    assert {row["squares_status"] for row in rows} == {"ok", "miss"}
    left = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
    wait_for(lambda: postgres.execute(left) == [(0,)])


@pytest.mark.proof
def test_each_worker_process_fetches_one_token_and_keeps_it_for_the_next_run(
    spark, service, monkeypatch, enrich
):
    tokens, seen, both = [], set(), asyncio.Event()

    async def answer(request):
        if request.path == "/token":
            tokens.append(f"token-{len(tokens) + 1}")
            if len(tokens) == 2:
                both.set()
            return web.json_response(
                {"access_token": tokens[-1], "token_type": "bearer", "expires_in": 3600}
            )
        await asyncio.wait_for(both.wait(), 60)  # so that two tasks do run at once
        seen.add(request.headers["Authorization"])
        return web.json_response({"x": 1})

    service.answer = answer
    for name in ("TOKEN_ID", "TOKEN_SECRET"):
        monkeypatch.setitem(spark.sparkContext.environment, name, "me")
    access = OAuth2ClientCredentials(
        token_url=f"{service.url}/token",
        client_id=Env("TOKEN_ID"),
        client_secret=Env("TOKEN_SECRET"),
    )
    asked = Service(name="s", url=service.url, max_concurrency=4, auth=access)
    fields = {"service": asked, "request": "GET /x/{k}", "keys": {"k": "id"}, "timeout": 90.0}
    pair = [
        HttpLookup(name=name, returns=f"{name}_x INT", paths={f"{name}_x": "$.x"}, **fields)
        for name in "ab"
    ]
    for _ in range(2):
        rows = enrich(spark.range(0, 40, 1, 2), enrichment(*pair)).collect()
        assert {row["a_status"] for row in rows} | {row["b_status"] for row in rows} == {"ok"}
    assert tokens == ["token-1", "token-2"]  # two tasks at once, each with two lookups, twice
    assert seen == {"Bearer token-1", "Bearer token-2"}
