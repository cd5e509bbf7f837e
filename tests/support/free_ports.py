"""Ports for servers that a test starts again on the same one."""

import random
import socket
from pathlib import Path

LOWEST = 16_000
GIVEN_BY_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")  # to who asks for any port


def free_port() -> int:
    """A free port of loopback that the kernel gives to nobody else meanwhile."""
    highest = int(GIVEN_BY_KERNEL.read_text().split()[0]) - 1
    while True:
        port = random.SystemRandom().randint(LOWEST, highest)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
