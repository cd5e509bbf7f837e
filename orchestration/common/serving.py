"""Starts several servers on this machine, and stops all of them together."""

import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from jobs.process.process_guard import command_under_guard

STOPS = (signal.SIGINT, signal.SIGTERM)


def serve_together(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    *,
    ports: Mapping[str, str],
    called: str,
    grace: float,
    greeting: str = "",
) -> int:
    """Run the commands under guards until any of them ends or Ctrl-C, then stop all.

    Args:
        commands: The commands.
        environment: Variables added to ours.
        ports: The ports, by the variable that sets each. If a port cannot be used, nothing is
            started.
        called: What the user typed, such as `make ui`, for messages.
        grace: s between SIGTERM and SIGKILL.
        greeting: Printed at the start.

    Returns:
        The exit status.
    """
    for variable, port in ports.items():
        same = [name for name, other in ports.items() if other == port and name != variable]
        why = f"is also the port of {same[0]}: change that" if same else why_unusable(port, called)
        if why:
            print(f"Port {port} {why}, or set {variable} to a free port.", file=sys.stderr)
            return 1
    for stop in STOPS:  # a shell makes background processes ignore SIGINT
        signal.signal(stop, signal.default_int_handler)
    print(greeting, end="\n" if greeting else "", flush=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [start(command, {**os.environ, **environment}, grace) for command in commands]
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        ended = next(
            number for number, process in enumerate(processes) if process.poll() is not None
        )
        print(
            f"Stopping all servers, because this command ended: {shlex.join(commands[ended])}",
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        return 0
    finally:
        for stop in STOPS:  # a second Ctrl-C would leave the loop below
            signal.signal(stop, signal.SIG_IGN)
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return 1


def why_unusable(port: str, called: str) -> str:
    """Return why no server can listen on this port, and a cure; empty if one can."""
    if not (port.isdecimal() and 0 < int(port) < 65_536):
        return "is not a number from 1 to 65535: correct it"
    with socket.socket() as probe:
        # connections that just ended take no port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(port)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"cannot be used ({error.strerror}): allow it"
            return f"is in use, perhaps by another `{called}`: stop it"
    return ""


def start(
    command: Sequence[str], environment: Mapping[str, str], grace: float
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603
        command_under_guard(list(command), grace=grace),
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
