"""A crash as the machine's own: a process and all that it started, ended by SIGKILL at once, without a goodbye."""

from __future__ import annotations

import contextlib

import psutil


def kill_tree(pid: int) -> int:
    """Kill the process `pid` and every process below it. Returns how many there were; none is left when it returns.

    All are stopped before the first is killed, so that none sees another one die and does something about it.
    """
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        top.suspend()
        tree.append(top)
    while found := [child for one in tree for child in _children(one) if child not in tree]:
        for child in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()
        tree += found
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(tree, timeout=30)
    return len(tree)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []
