"""`make ui` starts all of it, or says why it starts nothing."""

import socket
import subprocess
import sys

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


@pytest.mark.parametrize("address", ["https://of.example", ""])
def test_links_lead_to_the_addresses_that_the_user_has_set(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    given = {}
    monkeypatch.setattr(
        ui, "serve_together", lambda _, environment, **__: given.update(environment)
    )
    for name in (ui.UI_URL, ui.REPORTS_URL):
        monkeypatch.setenv(name, address)
    ui.serve({})
    ports = {ui.UI_URL: 3000, ui.REPORTS_URL: 3070}
    assert {name: given[name] for name in ports} == {
        name: address or f"http://127.0.0.1:{port}" for name, port in ports.items()
    }


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (
            {"A": "3000", "B": "3000"},
            "Port 3000 is also the port of B: change that, or set A to a free port.\n",
        ),
        (
            {"A": "web"},
            "Port web is not a number from 1 to 65535: correct it, or set A to a free port.\n",
        ),
        (
            {"A": "70000"},
            "Port 70000 is not a number from 1 to 65535: correct it, or set A to a free port.\n",
        ),
    ],
)
def test_a_port_on_which_nothing_can_listen_is_refused_in_a_sentence(capsys, ports, message):
    assert serving.serve_together([], {}, ports=ports, called="make ui", grace=1) == 1
    assert capsys.readouterr().err == message


def test_an_ended_command_is_named_and_interrupts_during_the_shutdown_are_ignored(tmp_path):
    """The other server takes a while to end, and Ctrl-C comes again meanwhile."""
    slow = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        f"    os.kill({'%d'}, signal.SIGINT); time.sleep(0.5); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close(); time.sleep(60)"
    )
    brief = (
        f"import os, time\nwhile not os.path.exists({str(tmp_path / 'ready')!r}): time.sleep(0.01)"
    )
    program = (
        "import os, sys\nfrom orchestration.common.serving import serve_together\n"
        f"slow = {slow!r} % os.getpid()\n"
        f"commands = [[sys.executable, '-c', slow], [sys.executable, '-c', {brief!r}]]\n"
        "sys.exit(serve_together(commands, {}, ports={}, called='make ui', grace=5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Stopping all servers, because this command ended: ")
    assert done.stderr.count("\n") == brief.count("\n") + 1  # and no traceback
