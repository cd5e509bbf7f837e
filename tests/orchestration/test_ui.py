"""`make ui` starts all of it, or says why it starts nothing."""

import socket

import pytest

from orchestration.common import serving
from orchestration.common.report_server import REPORTS_PORT
from orchestration.dagster.web import ui
from tests.support.free_ports import free_port

pytestmark = pytest.mark.process

WEATHER_PORT = "TIDEGATE_WEATHER_PORT"


@pytest.mark.parametrize("variable", [ui.UI_PORT, REPORTS_PORT, WEATHER_PORT])
def test_a_port_that_is_taken_is_named_with_the_variable_that_sets_it_and_nothing_is_started(
    monkeypatch, capsys, tmp_path, variable
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serving, "start", lambda *_: pytest.fail("started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {name: str(free_port()) for name in (ui.UI_PORT, REPORTS_PORT, WEATHER_PORT)} | {
            variable: port
        }
        weather = {WEATHER_PORT: ports.pop(WEATHER_PORT)}
        for name, number in ports.items():
            monkeypatch.setenv(name, number)
        assert ui.serve({}, (), weather) == 1
    message = (
        f"Port {port} is in use, perhaps by another `make ui`: stop it, or set {variable} to "
        "a free port.\n"
    )
    assert capsys.readouterr().err == message
