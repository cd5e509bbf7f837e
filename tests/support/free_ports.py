"""Ports for servers that a test starts again on the same one."""

import random
import socket

LOWEST, HIGHEST = 16_000, 32_000  # below the ephemeral ports of Linux


def free_port() -> int:
    """A free port of loopback that the kernel gives to no other program meanwhile."""
    while True:
        port = random.SystemRandom().randint(LOWEST, HIGHEST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
