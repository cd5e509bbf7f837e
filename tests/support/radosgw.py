"""Ceph's S3 server on loopback, from the system's packages: a monitor, a store in memory, and the
gateway.
"""

import contextlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from tests.support.free_ports import free_port

PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd", "monmaptool")
STARTS_WITHIN = 120.0  # s
SETTINGS = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd pool default pg num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
osd objectstore = memstore
osd class load list = *
osd class default list = *
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
mon data = {folder}/mon
osd data = {folder}/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{ports[2]}
rgw data = {folder}/rgw
rgw relaxed region enforcement = true
"""


def is_installed():
    return all(map(shutil.which, PROGRAMS))


@contextlib.contextmanager
def running(folder):
    """The address of a server for the block, whose keys are "key" and "secret"."""
    ports, fsid = [free_port() for _ in range(3)], uuid.uuid4()
    settings = folder / "ceph.conf"
    settings.write_text(SETTINGS.format(folder=folder, ports=ports, fsid=fsid))
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    with contextlib.ExitStack() as daemons:

        def run(*command):
            subprocess.run(
                [*command, "-c", settings], check=True, capture_output=True, timeout=STARTS_WITHIN
            )

        def start(*command):
            log = daemons.enter_context(Path(folder, f"{command[0]}.out").open("wb"))
            daemon = subprocess.Popen([*command, "-f", "-c", settings], stdout=log, stderr=log)
            daemons.callback(daemon.wait)
            daemons.callback(daemon.kill)

        monitors = f"[v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]"
        run(
            "monmaptool",
            "--create",
            "--fsid",
            str(fsid),
            "--addv",
            "a",
            monitors,
            folder / "monmap",
        )
        run("ceph-mon", "-i", "a", "--mkfs", "--monmap", folder / "monmap")
        start("ceph-mon", "-i", "a")
        store = str(uuid.uuid4())
        run("ceph", "osd", "new", store)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", store)
        start("ceph-osd", "-i", "0")
        run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=store")
        keys = ("--access-key=key", "--secret=secret")
        run(
            "radosgw-admin",
            "-n",
            "client.rgw",
            "user",
            "create",
            "--uid=tests",
            "--display-name=tests",
            *keys,
        )
        start("radosgw", "-n", "client.rgw")
        url = f"http://127.0.0.1:{ports[2]}"
        _wait_for(url)
        yield url


def _wait_for(url):
    until = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return
