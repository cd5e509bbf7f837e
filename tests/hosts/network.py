"""Hosts on one machine that share nothing: each has a network, mount, PID, UTS and IPC namespace.

A host sees the machine's disk read-only, as the image that it was started from, and has memory file
systems for /tmp, /var/tmp and /dev/shm. A bridge in a further network namespace joins the hosts;
nothing listens outside of them.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

SUBNET = "10.77.0."
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLOCK = Path(__file__).with_name("clock.c")
LIBC = ctypes.CDLL(None, use_errno=True)
BOOTS_WITHIN = ENDS_WITHIN = 20.0  # s
PACKAGES = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "unshare": "util-linux",
            "setpriv": "util-linux", "pgrep": "procps", "cc": "gcc"}  # fmt: skip


def obstacle():
    """Why this machine cannot make such hosts, as one sentence; empty where it can."""
    if os.geteuid() != 0:
        return "hosts in namespaces need root; start the tests as root."
    missing = {
        package for tool, package in PACKAGES.items() if shutil.which(tool, path=PATH) is None
    }
    return (
        f"hosts in namespaces need apt-get install {' '.join(sorted(missing))}." if missing else ""
    )


class Host:
    """One host, from `boot` to `power_off`.

    Args:
        name: Of the host, as the others address it.
        number: The last number of its address.
        switch: The network namespace of the bridge.
        folder: Takes the logs of what runs here.
        mounts: Folders of the machine that the host sees elsewhere, by their place there.
    """

    def __init__(self, name, number, switch, folder, mounts):
        self.name, self.address = name, f"{SUBNET}{number}"
        self._namespace, self._port = f"{switch}-{name}", f"{switch}{number}"
        self._switch, self._folder, self._mounts = switch, folder, mounts
        self._init = None
        self._processes = []  # all that were started here

    def boot(self, hosts_file):
        """Start it: with an address, the names of the other hosts, and empty disks."""
        run("ip", "netns", "add", self._namespace)
        run("ip", "link", "add", self._port, "netns", self._switch, "type", "veth",
            "peer", "name", "eth0", "netns", self._namespace)  # fmt: skip
        run("ip", "-n", self._switch, "link", "set", self._port, "master", "br0", "up")
        run("ip", "-n", self._namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            run("ip", "-n", self._namespace, "link", "set", device, "up")
        mounts = "\n".join(
            f"mount --bind {source} {target}" for target, source in self._mounts.items()
        )
        disks = "\n".join(f"mount -t tmpfs tmpfs {folder}" for folder in PRIVATE)
        script = f"""set -e
            hostname {self.name}
            mount --make-rprivate /
            mount --bind {hosts_file} /etc/hosts
            {mounts}
            mount -o remount,bind,ro /
            {disks}
            mount -t proc proc /proc
            touch /tmp/booted
            exec sleep infinity
        """
        # the host ends with the process of the tests, however that ends
        launch = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self._namespace, "unshare",
                  "--mount", "--uts", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c",
                  script]  # fmt: skip
        booting = self._launch("boot", launch)
        deadline = time.monotonic() + BOOTS_WITHIN
        while not self._has_booted(booting.pid):
            if booting.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log_file("boot").read_text())
            time.sleep(0.05)

    def _launch(self, name, words):
        with self.log_file(name).open("ab") as log:
            started = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(started)
        return started

    def _has_booted(self, unshare):
        found = subprocess.run(
            ["pgrep", "-P", str(unshare)], capture_output=True, text=True, check=False
        )
        self._init = int(found.stdout.split()[0]) if found.stdout else None
        return self._init is not None and self.path("/tmp/booted").exists()

    @property
    def is_up(self):
        return self._init is not None

    def path(self, path):
        """The machine's path of a file of this host."""
        return Path(f"/proc/{self._init}/root{path}")

    def log_file(self, name):
        return self._folder / f"{self.name}.{name}.log"

    def command(self, *words, environment=None, clock_ahead=0.0):
        """The command that runs `words` here, with these variables only. clock_ahead: seconds."""
        variables = {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **(environment or {})}
        if clock_ahead:
            variables |= {"LD_PRELOAD": self._clock(), "CLOCK_AHEAD": f"{clock_ahead:.0f}"}
        pairs = [f"{name}={value}" for name, value in variables.items()]
        enter = ["nsenter", "-t", str(self._init), "-m", "-n", "-u", "-p", "-i", "--wdns=/tmp"]
        return [*enter, "env", "-i", *pairs, *map(str, words)]

    def _clock(self):
        """The library on this host that puts a process's wall clock ahead."""
        place = "/tmp/clock.so"
        if not self.path(place).exists():
            run("cc", "-O2", "-shared", "-fPIC", "-o", self._folder / "clock.so", CLOCK)
            shutil.copy(self._folder / "clock.so", self.path(place))
        return place

    def run(self, *words, environment=None, **more):
        """Run a command to its end."""
        return subprocess.run(self.command(*words, environment=environment), check=True, **more)

    def start(self, name, *words, environment=None, clock_ahead=0.0):
        """Start a command, whose output goes to the log `name`."""
        return self._launch(
            name, self.command(*words, environment=environment, clock_ahead=clock_ahead)
        )

    def listen(self, port):
        """A listening socket of this host, for a server in the process of the tests."""
        opened = []

        def open_there():
            with Path(f"/proc/{self._init}/ns/net").open() as namespace:
                if LIBC.setns(namespace.fileno(), 0):  # of this thread only
                    raise OSError(ctypes.get_errno(), "setns")
            opened.append(socket.create_server((self.address, port), backlog=100))

        thread = threading.Thread(target=open_there)
        thread.start()
        thread.join()
        return opened[0]

    def bytes_in_use(self, disk="/tmp"):
        usage = os.statvfs(self.path(disk))
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize

    def files(self, pattern="*"):
        """The files on its disks, as the host names them."""
        return sorted(
            f"{disk}/{found.relative_to(self.path(disk))}"
            for disk in PRIVATE
            for found in self.path(disk).rglob(pattern)
            if found.is_file()
        )

    def power_off(self):
        """Cut its power: every process ends at once, the disks are lost, and nobody gets an answer
        or an end.
        """
        if self._init is None:
            return
        run("ip", "-n", self._switch, "link", "set", self._port, "down", check=False)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)
        while self._processes:
            self._processes.pop().wait(ENDS_WITHIN)
        # else it is there a while longer
        run("ip", "-n", self._switch, "link", "del", self._port, check=False)
        run("ip", "netns", "del", self._namespace, check=False)
        self._init = None

    def filter(self, action, other):
        """Add (-A) or delete (-D) the rules that drop all packets from and to another host."""
        for chain, end in (("INPUT", "-s"), ("OUTPUT", "-d")):
            run(
                "ip",
                "netns",
                "exec",
                self._namespace,
                "iptables",
                action,
                chain,
                end,
                other.address,
                "-j",
                "DROP",
            )


class Network:
    """The hosts of a test, by name. A `with` block boots them and powers them off.

    Args:
        numbers: The last number of each host's address, by name.
        folder: Takes the logs.
        mounts: Folders of the machine that all hosts see elsewhere, by their place there.
    """

    def __init__(self, numbers, folder, mounts):
        self._switch, self._folder = f"t{os.getpid() % 100_000}", folder
        self._hosts_file = folder / "hosts"
        self.hosts = {
            name: Host(name, number, self._switch, folder, mounts)
            for name, number in numbers.items()
        }

    def __enter__(self):
        _remove_leftovers()
        run("ip", "netns", "add", self._switch)
        try:
            run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", self._switch, "link", "set", "br0", "up")
            names = "".join(f"{host.address} {host.name}\n" for host in self.hosts.values())
            self._hosts_file.write_text(f"127.0.0.1 localhost\n{names}")
            for host in self.hosts.values():
                host.boot(self._hosts_file)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts.values():
            host.power_off()
        run("ip", "netns", "del", self._switch, check=False)

    def boot_again(self, name):
        """Switch a host on after `power_off`. Its disks are empty."""
        self.hosts[name].boot(self._hosts_file)

    @contextlib.contextmanager
    def cut(self, name, *others):
        """Drop every packet between a host and others, for the body."""
        pairs = [pair for other in others for pair in ((name, other), (other, name))]
        for one, other in pairs:
            self.hosts[one].filter("-A", self.hosts[other])
        try:
            yield
        finally:
            for one, other in pairs:
                if self.hosts[one].is_up:
                    self.hosts[one].filter("-D", self.hosts[other])


def _remove_leftovers():
    """Delete the network namespaces of test processes that were killed."""
    listed = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    for name in re.findall(r"^(t\d+\S*)", listed, re.MULTILINE):
        if not Path("/proc", re.match(r"t(\d+)", name)[1]).exists():
            run("ip", "netns", "del", name, check=False)


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
