"""Starts several servers on this machine, and stops all of them together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from jobs.process.process_guard import command_under_guard


def serve_together(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    *,
    ports: Mapping[str, str],
    called: str,
    grace: float,
    greeting: str = "",
) -> int:
    """Runs the commands under guards until any of them ends or Ctrl-C, then stops all.

    Args:
        commands: The commands.
        environment: Variables added to ours.
        ports: By the variable that sets each; nothing is started if a port is in use.
        called: The user's command, such as `make ui`.
        grace: s between SIGTERM and SIGKILL.
        greeting: Printed at the start.

    Returns:
        The exit status.
    """
    for variable, number in ports.items():
        if is_taken(int(number)):
            cure = f"stop it, or set {variable} to a free port"
            print(
                f"Port {number} is in use, perhaps by another `{called}`: {cure}.",
                file=sys.stderr,
            )
            return 1
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell makes background processes ignore SIGINT
        signal.signal(stop, signal.default_int_handler)
    print(greeting, end="\n" if greeting else "", flush=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [start(command, {**os.environ, **environment}, grace) for command in commands]
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return 1


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # connections that just ended take no port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def start(
    command: Sequence[str], environment: Mapping[str, str], grace: float
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603
        command_under_guard(list(command), grace=grace),
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
