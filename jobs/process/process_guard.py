"""Runs a command so that nothing of it outlives its starter. Standard library only; Linux.

    python process_guard.py PARENT_PID GRACE_SECONDS command argument ...

Dagster starts Spark, or a command does; Spark starts a Python driver and workers. Whichever dies
first, all end:
- the command has a separate session; on SIGTERM, SIGINT or SIGHUP the guard ends it: SIGTERM,
  GRACE_SECONDS, SIGKILL;
- the kernel sends SIGTERM to the guard when its starter dies, and to the command when the guard
  dies, kill -9 included;
- when the command has ended, the rest of the session is killed: Spark's Python workers leave the
  process group.

Exits with the command's status, or 128 + the signal that ended it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
GONE_WITHIN = 5.0  # s; a killed process ends at once, unless it hangs in the kernel
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def die_with_parent() -> None:
    """Make the kernel send us SIGTERM when the thread that started us ends; only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def command_under_guard(command: list[str], *, grace: float) -> list[str]:
    """Return the command line that runs `command` under a guard whose starter is this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(grace), *command]


def _prepare_command() -> None:
    # a starter may ignore it, as a process that is being stopped; then Java would too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS | {signal.SIGCHLD})
    die_with_parent()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _stop(child: subprocess.Popen[bytes], grace: float) -> None:
    _signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while child.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0 or signal.sigtimedwait({signal.SIGCHLD}, left) is None:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait()


def _kill_session(session: int) -> None:
    """Kill the rest of the session until it is gone: SIGKILL takes effect after a moment."""
    deadline = time.monotonic() + GONE_WITHIN
    while (left := _living(session)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _living(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process may end while we look
            # after the name: state, parent, group, session
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def main(arguments: list[str]) -> int:
    parent, grace, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    # sigwait receives them: none is lost in between
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS | {signal.SIGCHLD})
    die_with_parent()
    if os.getppid() != parent:  # the parent died before the call above
        return 128 + signal.SIGTERM
    child = subprocess.Popen(  # noqa: S603
        command,
        start_new_session=True,
        preexec_fn=_prepare_command,  # noqa: PLW1509  # there is a single thread
        close_fds=False,  # so that the command also holds the lease that the starter passed on
    )
    try:
        while child.poll() is None:
            if signal.sigwait(STOPS | {signal.SIGCHLD}) in STOPS:
                _stop(child, grace)
    finally:
        _kill_session(child.pid)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
