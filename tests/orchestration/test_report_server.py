"""Reports and logs are linked by http addresses of this machine; nothing else is shown."""

import threading
import urllib.error
import urllib.request

import pytest

from orchestration.common.report_server import REPORTS_PORT, REPORTS_URL, served, server


@pytest.fixture
def address(tmp_path):
    for path, text in {
        "reports/flights_enriched/2013-01-10/index.html": "<title>the day</title>",
        "runs/flights_enriched/2013-01-10/abc.spark.log": "WARN Spark says",
        "raw/flights/date=2013-01-10/part.parquet": "not for the browser",
        "dagster/storage.db": "not for the browser",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with server(tmp_path, 0) as serving:
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
    assert get(f"{address}/reports/flights_enriched/2013-01-10/index.html") == ("text/html", "<title>the day</title>")
    kind, text = get(f"{address}/runs/flights_enriched/2013-01-10/abc.spark.log")
    assert (kind, text) == ("text/plain; charset=utf-8", "WARN Spark says")


@pytest.mark.process
def test_the_first_page_leads_to_the_reports(address):
    assert "flights_enriched" in get(address)[1]


@pytest.mark.parametrize(
    "path",
    ["/raw/flights/date=2013-01-10/part.parquet", "/dagster/storage.db", "/reports/../dagster/storage.db", "/reportsx"],
)
@pytest.mark.process
def test_nothing_else_is_served(address, path):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{address}{path}")


@pytest.mark.process
def test_what_is_not_written_yet_is_told_and_not_just_missing(address):
    with pytest.raises(urllib.error.HTTPError, match="the first run that writes a day makes its report"):
        get(f"{address}/reports/flights_enriched/2013-01-11/index.html")


def test_links_follow_the_port_or_a_public_address(monkeypatch):
    monkeypatch.delenv(REPORTS_URL, raising=False)
    monkeypatch.delenv(REPORTS_PORT, raising=False)
    assert served("reports/a") == "http://127.0.0.1:3070/reports/a"
    monkeypatch.setenv(REPORTS_PORT, "4000")
    assert served("reports/a") == "http://127.0.0.1:4000/reports/a"
    monkeypatch.setenv(REPORTS_URL, "https://reports.example/tidegate/")
    assert served("reports/a") == "https://reports.example/tidegate/reports/a"
