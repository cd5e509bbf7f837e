"""A small Kubernetes on the hosts of a test: the verbs that Spark's client uses, and nodes that run
the pods.
"""

import contextlib
import itertools
import json
import os
import queue
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "deploy/entrypoint.sh"
PORT = 6443
LIST_KINDS = {"pods": "PodList", "configmaps": "ConfigMapList", "services": "ServiceList",
              "persistentvolumeclaims": "PersistentVolumeClaimList"}  # fmt: skip
NOT_FOUND = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "NotFound",
    "code": 404,
}


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Objects:
    """What the API server stores, by kind and name; it tells each change of a pod to those that
    watch.
    """

    def __init__(self):
        self.by_kind = {kind: {} for kind in LIST_KINDS}
        self.written = []  # every object that a client posted, as JSON
        self._versions, self._lock, self._watchers = itertools.count(1), threading.RLock(), []

    def put(self, kind, found, event):
        with self._lock:
            version = str(next(self._versions))
            metadata = found.setdefault("metadata", {})
            metadata |= {"resourceVersion": version, "namespace": "default"}
            if event == "DELETED":
                self.by_kind[kind].pop(metadata["name"], None)
            else:
                metadata.setdefault("uid", f"uid-{version}")
                metadata.setdefault("creationTimestamp", now())
                self.by_kind[kind][metadata["name"]] = found
            if kind == "pods":
                told = json.dumps({"type": event, "object": found})
                for watcher in self._watchers:
                    watcher.put(told)
            return found

    def select(self, kind, labels):
        """labels: equalities and inequalities, as `labelSelector` has them: "a=b,c!=d"."""
        wanted = [label.partition("=")[::2] for label in labels.split(",") if label]

        def fits(found):
            has = found["metadata"].get("labels", {})
            return all(
                (has.get(key.strip("!")) == value) != key.endswith("!") for key, value in wanted
            )

        with self._lock:
            return [found for found in self.by_kind[kind].values() if fits(found)]

    @contextlib.contextmanager
    def watch(self):
        events = queue.Queue()
        with self._lock:
            self._watchers.append(events)
        try:
            yield events
        finally:
            with self._lock:
                self._watchers.remove(events)

    @property
    def version(self):
        return str(next(self._versions))


class Api(BaseHTTPRequestHandler):
    """One request of Spark's client; `server.cluster` holds the objects and runs the pods."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def cluster(self):
        return self.server.cluster

    def _target(self):
        """The kind and name of the path, and the parameters."""
        address = urlsplit(self.path)
        parts = address.path.strip("/").split("/")  # api/v1/namespaces/default/pods/NAME
        return parts[4], parts[5] if len(parts) > 5 else None, parse_qs(address.query)

    def _body(self):
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length)) if length else None

    def _send(self, found, status=200):
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        kind, name, parameters = self._target()
        objects, labels = self.cluster.objects, parameters.get("labelSelector", [""])[0]
        if parameters.get("watch") == ["true"]:
            # the client tries a web socket first, and goes on without where the server answers as
            # to any request
            return self._send({}) if "Upgrade" in self.headers else self._watch()
        if name is not None:
            found = objects.by_kind[kind].get(name)
            return self._send(NOT_FOUND, 404) if found is None else self._send(found)
        listed = {
            "kind": LIST_KINDS[kind],
            "apiVersion": "v1",
            "metadata": {"resourceVersion": objects.version},
        }
        return self._send(listed | {"items": objects.select(kind, labels)})

    def _watch(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.cluster.objects.watch() as events, contextlib.suppress(OSError):
            while (event := events.get()) is not None:
                line = event.encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.flush()

    def do_POST(self):
        kind, _, _ = self._target()
        posted = self._body()
        self.cluster.objects.written.append(json.dumps(posted))
        if kind == "pods":
            posted["status"] = {"phase": "Pending"}
        self._send(self.cluster.objects.put(kind, posted, "ADDED"), 201)
        if kind == "pods":
            self.cluster.start_pod(posted)

    def do_PATCH(self):
        kind, name, _ = self._target()
        patch = self._body()
        if (found := self.cluster.objects.by_kind[kind].get(name)) is None:
            return self._send(NOT_FOUND, 404)
        found["metadata"].setdefault("labels", {}).update(
            patch.get("metadata", {}).get("labels", {})
        )
        return self._send(self.cluster.objects.put(kind, found, "MODIFIED"))

    def do_DELETE(self):
        kind, name, parameters = self._target()
        self._body()
        objects = self.cluster.objects
        deleted = objects.select(kind, parameters.get("labelSelector", [""])[0])
        for found in [pod for pod in deleted if name in (None, pod["metadata"]["name"])]:
            if kind == "pods":
                self.cluster.stop_pod(found["metadata"]["name"])
            objects.put(kind, found, "DELETED")
        self._send({"kind": "Status", "apiVersion": "v1", "status": "Success"})


class Cluster:
    """An API server on one host; each posted pod's container runs on the node with the fewest.

    Args:
        host: Where the API server listens.
        nodes: The hosts that run pods, by name.
        image: The variables that the image sets.
        secrets: By name, the values by key.
    """

    def __init__(self, host, nodes, image, secrets):
        self.objects, self.secrets = Objects(), secrets
        self._nodes, self._image = nodes, image
        self._pods = {}  # its node's name and process, by name
        self._server = ThreadingHTTPServer((host.address, PORT), Api, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = host.listen(PORT)
        self._server.daemon_threads = True
        self._server.server_address = (host.address, PORT)
        self._server.cluster = self
        self.url = f"k8s://http://{host.address}:{PORT}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def start_pod(self, pod):
        """Run the container of a pod on a node."""
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        used = [node for node, _ in self._pods.values()]
        node = min(self._nodes, key=used.count)
        host, volumes = self._nodes[node], f"/tmp/pods/{name}"
        variables = self._image | {
            item["name"]: self._value(item, name, host) for item in container.get("env", [])
        }
        for mount in container.get("volumeMounts", []):
            host.path(place := f"{volumes}/{mount['name']}").mkdir(parents=True)
            variables = {
                key: value.replace(mount["mountPath"], place) for key, value in variables.items()
            }
        process = host.start(name, "bash", ENTRYPOINT, *container["args"], environment=variables)
        self._pods[name] = node, process
        running = {"running": {"startedAt": now()}}
        self._tell(pod, host, {"phase": "Running"}, running)
        threading.Thread(target=self._await_end, args=(pod, host, process), daemon=True).start()

    def _value(self, item, pod, host):
        if "value" in item or "valueFrom" not in item:
            return item.get("value", "")
        source = item["valueFrom"]
        if "secretKeyRef" in source:
            return self.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        return {"status.podIP": host.address, "metadata.name": pod}[source["fieldRef"]["fieldPath"]]

    def _await_end(self, pod, host, process):
        code = process.wait()
        if (
            pod["metadata"]["name"] in self.objects.by_kind["pods"]
            and pod["status"].get("reason") != "Evicted"
        ):
            ended = {
                "terminated": {"exitCode": code % 256, "startedAt": now(), "finishedAt": now()}
            }
            self._tell(pod, host, {"phase": "Failed" if code else "Succeeded"}, ended)

    def _tell(self, pod, host, status, state):
        container = pod["spec"]["containers"][0]["name"]
        statuses = [{"name": container, "ready": "running" in state, "restartCount": 0, "image": "tidegate",
                     "imageID": "tidegate", "state": state}]  # fmt: skip
        pod["status"] = {"podIP": host.address, "hostIP": host.address, "startTime": now(),
                         "containerStatuses": statuses} | status  # fmt: skip
        self.objects.put("pods", pod, "MODIFIED")

    def pods(self):
        """The names of the pods that run, with their nodes."""
        return {
            name: node for name, (node, process) in self._pods.items() if process.poll() is None
        }

    def evict(self, name):
        """End a pod as a node does that needs its memory: without a word to it."""
        pod = self.objects.by_kind["pods"][name]
        node, _ = self._pods[name]
        pod["status"]["reason"] = "Evicted"
        self.stop_pod(name)
        killed = {
            "terminated": {
                "exitCode": 137,
                "reason": "Evicted",
                "startedAt": now(),
                "finishedAt": now(),
            }
        }
        self._tell(pod, self._nodes[node], {"phase": "Failed", "reason": "Evicted"}, killed)

    def stop_pod(self, name):
        _, process = self._pods[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def image(environment):
    """The variables of deploy/Dockerfile, with the machine's own Python and the lab's code."""
    python = Path(sys.executable).parent
    return environment | {
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
        "PYSPARK_PYTHON": sys.executable,
    }
