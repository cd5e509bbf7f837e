"""Reports and logs are linked by http addresses of this machine; nothing else is shown."""

import random
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest

from jobs.errors import DeclarationError
from orchestration.common import serve_reports
from orchestration.common.report_server import PROGRAM, REPORTS_PORT, REPORTS_URL, served, server


def pages(path, _query):
    return (HTTPStatus.OK, "<title>all tables</title>") if path == "/" else None


@pytest.fixture
def address(tmp_path):
    for path, text in {
        "reports/flights_enriched/2013-01-10/index.html": "<title>the day</title>",
        "runs/flights_enriched/2013-01-10/abc.log": "WARN Spark says",
        "raw/flights/date=2013-01-10/part.parquet": "not for the browser",
        "dagster/storage.db": "not for the browser",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with server(tmp_path, 0, pages) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def get(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.headers["Content-Type"], response.read().decode()


@pytest.mark.process
def test_reports_and_logs_are_shown_in_the_browser(address):
    assert get(f"{address}/reports/flights_enriched/2013-01-10/index.html") == (
        "text/html",
        "<title>the day</title>",
    )
    kind, text = get(f"{address}/runs/flights_enriched/2013-01-10/abc.log")
    assert (kind, text) == ("text/plain; charset=utf-8", "WARN Spark says")


@pytest.mark.process
@pytest.mark.parametrize("path", ["", "/?a=b", "/reports", "/reports/", "/reports/index.html"])
def test_the_root_and_the_reports_folder_show_the_page_over_all_tables(address, path):
    kind, text = get(f"{address}{path}")
    assert (kind, text) == ("text/html; charset=utf-8", "<title>all tables</title>")


@pytest.mark.parametrize(
    "path",
    [
        "/raw/flights/date=2013-01-10/part.parquet",
        "/dagster/storage.db",
        "/reports/../dagster/storage.db",
        "/reportsx",
    ],
)
@pytest.mark.process
def test_only_reports_and_logs_are_served(address, path):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{address}{path}")


@pytest.mark.process
def test_reports_on_another_disk_are_served_through_a_link(address, tmp_path):
    (tmp_path / "reports").rename(tmp_path / "another_disk")
    (tmp_path / "reports").symlink_to(tmp_path / "another_disk")
    kind, text = get(f"{address}/reports/flights_enriched/2013-01-10/index.html")
    assert (kind, text) == ("text/html", "<title>the day</title>")


@pytest.mark.parametrize("public", ["reports.example.com", "ftp://reports.example.com", "https://"])
def test_a_malformed_public_address_is_refused(tmp_path, monkeypatch, public):
    monkeypatch.setenv(REPORTS_URL, public)
    with pytest.raises(DeclarationError, match=f"{REPORTS_URL} is '{public}'; write the whole"):
        server(tmp_path, 0, pages)


@pytest.mark.process
def test_a_port_that_the_report_server_cannot_use_is_refused_in_a_sentence(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for value, why in (
            (port, "is in use, perhaps by another `tidegate reports`: stop it"),
            ("web", "is not a number from 1 to 65535: correct it"),
        ):
            monkeypatch.setenv(REPORTS_PORT, value)
            with pytest.raises(
                DeclarationError, match=f"^Port {value} {why}, or set {REPORTS_PORT}"
            ):
                serve_reports.main()


@pytest.mark.proof
@pytest.mark.process
def test_the_report_server_refuses_a_malformed_public_address_without_a_traceback(monkeypatch):
    monkeypatch.setenv(REPORTS_URL, "reports.example.com")
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith(f"{REPORTS_URL} is 'reports.example.com'; write the whole")


@pytest.mark.process
def test_a_report_that_is_not_written_yet_has_a_page_that_says_so(address):
    with pytest.raises(
        urllib.error.HTTPError, match="the first run that writes a day makes its report"
    ):
        get(f"{address}/reports/flights_enriched/2013-01-11/index.html")


def test_links_follow_the_port_or_a_public_address(monkeypatch):
    monkeypatch.delenv(REPORTS_URL, raising=False)
    monkeypatch.delenv(REPORTS_PORT, raising=False)
    assert served("reports/a") == "http://127.0.0.1:3070/reports/a"
    monkeypatch.setenv(REPORTS_PORT, "4000")
    assert served("reports/a") == "http://127.0.0.1:4000/reports/a"
    monkeypatch.setenv(REPORTS_URL, "https://reports.example/tidegate/")
    assert served("reports/a") == "https://reports.example/tidegate/reports/a"


def answer(address: str, head: bytes) -> bytes:
    """What the server answers to these bytes."""
    with socket.create_connection(
        ("127.0.0.1", int(address.rpartition(":")[2])), timeout=10
    ) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(
            ("127.0.0.1:3070", 200),
            ("localhost", 200),
            ("[::1]:3070", 200),
            ("reports.example", 200),
        ),
        *(
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("evil.example:127", 421),
            ("[", 421),
            ("", 421),
        ),
    ],
)
@pytest.mark.process
def test_a_request_for_another_host_is_refused(address, monkeypatch, host, status):
    monkeypatch.setenv(REPORTS_URL, "https://reports.example/tidegate")
    for path, text in (
        ("/reports/flights_enriched/2013-01-10/index.html", b"the day"),
        ("/", b"all tables"),
    ):
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        found = answer(address, head.encode())
        assert int(found.split()[1]) == status
        assert (text in found) == (status == 200)


@pytest.mark.parametrize("requests", [150, pytest.param(5_000, marks=pytest.mark.proof)])
@pytest.mark.process
def test_any_path_gets_an_answer_without_a_traceback_or_another_file(
    address, tmp_path, capfd, requests
):
    (tmp_path / "reports" / "loop").symlink_to("loop")
    (tmp_path / "reports" / "out.html").symlink_to(tmp_path / "dagster" / "storage.db")
    pieces = (
        *(
            "/",
            "//",
            "..",
            "%2e%2e",
            "%00",
            "%0d%0aX-Set:%201",
            "%ff",
            "%ed%b2%80",
            "\\",
            "?",
            "#",
            "%1b[31m",
            "a" * 300,
        ),
        *(
            "reports",
            "runs",
            "dagster",
            "storage.db",
            "raw",
            "loop",
            "out.html",
            "flights_enriched",
            "2013-01-10",
        ),
    )
    draw = random.Random(1)
    for _ in range(requests):
        path = "/" + "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 7)))
        found = answer(address, f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert found.split()[1] in {b"200", b"301", b"302", b"404"}, (path, found)
        assert b"not for the browser" not in found, path
        assert b"\r\nX-Set" not in found, path
    assert "Traceback" not in capfd.readouterr().err
