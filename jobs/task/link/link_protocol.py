"""The protocol of the driver link: one TCP connection per task, with lines of JSON.

The first line of a connection is the run's secret, compared before anything is parsed; the second
is the hello.

| from the task | |
|---|---|
| `hello`: job, partition, stage, attempt, `at`: µs | answered by `go`, `over` or `failed` |
| `heartbeat`: number, `at`: µs, keeps, wants, services | use of limits from then on, possible use |
| `progress`: TaskProgress | four times a second |
| `ended`: µs | all its rows are through, no call is in flight |
| `alive`: `at`: s | every 5 s |
| `pause`: service, seconds, reason, down | it was throttled or finds the service down: pause it |
| `failed`: error, message | another attempt would fail too; at the cap it waits for the others |

| from the driver | |
|---|---|
| `go`: share | begin with these calls in flight per lookup |
| `limits`: number, share, services | its limits from now on, in answer to this heartbeat |
| `ask` | send a heartbeat: a larger share is free |
| `over` | the job of the task has ended: do not begin |
| `alive`: `at`: s | the answer to the `alive` with this time |
| `stop` | Spark has ended the stage |
| `spent` | a task is at the cap on calls: start none, and send `failed` once none is in flight |
| `pause`: service, seconds, down | another task was throttled, or finds the service down |
| `failed`: error, message | a task has failed; no other task begins, or goes on |

Times are those of the task's clock, so that its shares can be compared with its calls, independent
of other hosts.

A connection may fall silent without an end, as when a host loses its power or a firewall forgets
it. `Deadlines` says what each side then does. A task counts the silence from the last message that
the driver has certainly received, so its calls have ended before the driver, which counts from the
receipt, gives their share to other tasks.
"""

import json
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

LONGEST_LINE = 64 << 10  # bytes
LONGEST_READ = 16 << 10  # bytes
HELLO, HEARTBEAT, PROGRESS, ENDED = "hello", "heartbeat", "progress", "ended"  # from the task
# from the driver
GO, LIMITS, ASK, OVER, STOP, SPENT = "go", "limits", "ask", "over", "stop", "spent"
PAUSE, FAILED, ALIVE = "pause", "failed", "alive"  # from both
FROM_DRIVER = (GO, LIMITS, ASK, OVER, STOP, SPENT, PAUSE, FAILED, ALIVE)


@dataclass(frozen=True)
class Deadlines:
    """What ends after how many seconds of silence. They are shorter than Spark's 60 and 120 s.

    Attributes:
        say_every: A task says that it is alive, and the driver answers.
        start_none: The task starts no call, and fails once the calls in flight have ended.
        end_calls: The task cancels calls that are still in flight.
        lost: The driver gives the task's share to others.
    """

    say_every: float = 5.0
    start_none: float = 20.0
    end_calls: float = 28.0
    lost: float = 30.0


DEADLINES = Deadlines()


@dataclass(frozen=True)
class DriverAddress:
    """The driver's address for a job's tasks. Plain data, sent to the executors in the plan."""

    host: str
    port: int
    job: int  # its number
    divides: bool = False  # tasks divide the calls in flight
    leases: bool = False  # calls need a lease from the driver
    secret: str = field(default="", repr=False)


def write_line(kind: str, **facts: Any) -> bytes:
    return json.dumps({"kind": kind, **facts}).encode() + b"\n"


class Lines:
    """Reads the driver's messages from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._received = b""

    def read(self) -> list[dict[str, Any]]:
        """Wait for the next messages. Empty if the connection has ended or sent invalid data."""
        while (messages := self.receive()) == []:
            pass
        return messages or []

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that the next bytes complete.

        None if the connection has ended or sent invalid data.
        """
        received = b""
        with suppress(OSError):
            received = self.socket.recv(LONGEST_READ)
        if not received or len(self._received) > LONGEST_LINE:
            return None
        *lines, self._received = (self._received + received).split(b"\n")
        try:
            return [_message(line) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return None


def _message(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if not isinstance(message, dict) or message.get("kind") not in FROM_DRIVER:
        raise ValueError(line)
    return message | {"share": [*map(int, message.get("share", ()))]}
