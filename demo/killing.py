"""Simulates a crash of the machine: SIGKILL for a process and all its descendants at once."""

import contextlib

import psutil


def kill_tree(pid: int) -> int:
    """Kill the process `pid` and its descendants, wait for their end, and return their number.

    All are stopped before the first is killed, so that none reacts to another's death.
    """
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        top.suspend()
        tree.append(top)
    while found := [child for parent in tree for child in _children(parent) if child not in tree]:
        for child in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()
        tree += found
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree, timeout=30)
    return len(tree)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []
