"""A real PgBouncer in transaction mode before the tests' PostgreSQL, where the machine has one."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg2

from tests.support.free_ports import free_port
from tests.support.postgres_server import as_another_user, owner_of_data


def pgbouncer():
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextlib.contextmanager
def pooled(postgres, database, *, server_connections=3):
    """The URL of the database through the pooler, which hands out a server per transaction."""
    with tempfile.TemporaryDirectory(prefix="tidegate-pgbouncer-") as name:
        folder, port = Path(name), free_port()
        (folder / "users").write_text(f'"{postgres.user}" "{postgres.password}"\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n{database} = host={postgres.host} port={postgres.port} "
            f"dbname={database}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {folder}/users\n"
            f"pool_mode = transaction\ndefault_pool_size = {server_connections}\n"
            "max_client_conn = 100\nserver_round_robin = 1\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        if os.geteuid() == 0:
            owner = owner_of_data()
            for path in (folder, *folder.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*as_another_user(), pgbouncer(), folder / "pgbouncer.ini"],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        try:
            _wait(postgres, database, port)
            yield f"postgresql+asyncpg://{postgres.user}:{postgres.password}@127.0.0.1:{port}/{database}"
        finally:
            process.terminate()
            process.wait(30)


def _wait(postgres, database, port):
    ends = time.monotonic() + 60
    while True:
        try:
            psycopg2.connect(
                host="127.0.0.1",
                port=port,
                user=postgres.user,
                password=postgres.password,
                dbname=database,
            ).close()
        except psycopg2.OperationalError:
            assert time.monotonic() < ends
            time.sleep(0.05)
        else:
            return
