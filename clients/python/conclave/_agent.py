"""The local API of the agent."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Tuple

_DEFAULT_ADDRESS = "http://127.0.0.1:7374"
_DIAL_TIMEOUT = 2.0
_RESPONSE_TIMEOUT = 5.0
# Three times the interval at which agents send data in a stream.
_SILENCE_MAX = 15.0
_RESPONSE_MAX = 64 << 10
_DELAY_MIN, _DELAY_MAX = 0.04, 1.0


class AgentError(Exception):
    """The agent responded with an unexpected status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def final(self) -> bool:
        """The agent rejected the request as invalid. Otherwise, a retry may succeed."""
        return 400 <= self.status < 500


@dataclass(frozen=True)
class State:
    """The state of a group, as this process's agent reported it. It may be outdated: act as coordinator only in run."""

    group: str
    # The name of this process.
    self: str
    # Empty while there is none.
    coordinator: str
    # This process is the coordinator.
    leading: bool
    priority: int
    term: int
    # The fencing token, 0 unless leading.
    token: int


def parse_state(data: Any) -> State:
    try:
        return State(data["group"], data["self"], data["coordinator"], data["leading"], data["priority"], data["term"], data["token"])
    except (KeyError, TypeError):
        raise ConnectionError(f"invalid state {data!r:.100}") from None


if sys.platform == "linux":

    def now() -> float:
        """A monotonic time that includes suspension of the machine, as the agent's lease does."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic


def backoff() -> Iterator[float]:
    """Delays between attempts to reach the agent."""
    delay = 0.0
    while True:
        delay = min(max(2 * delay, _DELAY_MIN), _DELAY_MAX)
        yield delay / 2 + random.random() * delay / 2


class _Connection(http.client.HTTPConnection):
    """A connection to the agent, over TCP or a Unix socket. It ignores proxy settings."""

    def __init__(self, address: urllib.parse.SplitResult) -> None:
        super().__init__(address.hostname or "localhost", address.port, timeout=_DIAL_TIMEOUT)
        self.path = address.path if address.scheme == "unix" else ""

    def connect(self) -> None:
        if self.path:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.path)
        else:
            super().connect()


class Agent:
    """The API of the agent for one group, over one connection."""

    def __init__(self, group: Optional[str], address: Optional[str]) -> None:
        text = address or os.environ.get("CONCLAVE_AGENT") or _DEFAULT_ADDRESS
        try:
            url = urllib.parse.urlsplit(text)
            tcp = url.scheme == "http" and url.hostname and url.port != 0 and url.path in ("", "/")
        except ValueError:
            tcp = False
        if not tcp and not (text.startswith("unix:///") and url.path != "/"):
            raise ValueError(
                f"the agent's address must be an http URL without a path, such as {_DEFAULT_ADDRESS}, or a Unix socket, "
                f"such as unix:///run/conclave/agent.sock, got {text!r}"
            )
        if group == "":
            raise ValueError("the name of the group must not be empty")
        self.group, self.address, self._url = group, text, url
        self._base = "" if group is None else "/v1/groups/" + urllib.parse.quote(group, safe="")
        self._connection: Optional[_Connection] = None
        self._sock: Optional[socket.socket] = None
        self._lock = threading.Lock()
        self._closed = False

    def twin(self) -> Agent:
        """Returns the same agent with a connection of its own."""
        return Agent(self.group, self.address)

    def close(self) -> None:
        """Ends a request or a stream of another thread, which then fails."""
        with self._lock:
            self._closed = True
            if self._sock:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # It isn't connected any more.

    def _open(self, method: str, path: str, body: Optional[bytes] = None, **headers: str) -> http.client.HTTPResponse:
        connection = self._connection
        if connection is None or connection.sock is None:
            connection = _Connection(self._url)
            connection.connect()
            with self._lock:
                self._connection, self._sock = connection, connection.sock
                if self._closed:
                    raise ConnectionAbortedError("the connection was closed")
        connection.sock.settimeout(_RESPONSE_TIMEOUT)
        connection.request(method, self._base + path, body, headers)
        return connection.getresponse()

    def hang_up(self) -> None:
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection = self._sock = None

    def request(self, method: str, path: str, body: Optional[bytes] = None) -> Tuple[int, bytes]:
        """Sends a request, and returns the status and the body of the response. It fails with OSError."""
        try:
            response = self._open(method, path, body)
            return response.status, response.read(_RESPONSE_MAX)
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            raise _os_error(error) from error

    def query(self, parameters: str = "") -> Tuple[State, Optional[float]]:
        """Returns the state, and the time until which this process is coordinator, if there is one.

        The response may have taken long, so the time counts from before the request.
        """
        sent = now()
        status, body = self.request("GET", "/leader" + parameters)
        try:
            data = json.loads(body)
            state = parse_state(data)
            if state.group != self.group or state.leading != (status == 200):
                raise ValueError
            remaining = data.get("remainingMillis")
        except (ValueError, ConnectionError):
            raise _status_error(status, body) from None
        return state, None if remaining is None else sent + remaining / 1000

    def events(self, path: str) -> Iterator[Tuple[str, Any]]:
        """Yields the kind and the data of each event of a stream. The first item is empty: the agent has accepted it."""
        try:
            response = self._open("GET", path, None, Accept="text/event-stream")
            if response.status != 200 or response.getheader("Content-Type", "").partition(";")[0] != "text/event-stream":
                raise _status_error(response.status, response.read(_RESPONSE_MAX))
            yield "", None
            if self._sock:
                self._sock.settimeout(_SILENCE_MAX)
            yield from _scan(response)
        except http.client.HTTPException as error:
            raise _os_error(error) from error
        finally:
            self.hang_up()


def _scan(stream: http.client.HTTPResponse) -> Iterator[Tuple[str, Any]]:
    kind = data = ""
    while True:
        line = stream.readline(_RESPONSE_MAX + 1)
        if not line.endswith(b"\n"):
            raise ConnectionError("the agent closed the stream")
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            kind = value
        elif field == "data":
            data += ("\n" if data else "") + value
            if len(data) > _RESPONSE_MAX:
                raise ConnectionError(f"event must have at most {_RESPONSE_MAX} bytes")
        elif not line.strip() and data:
            try:
                yield kind, json.loads(data)
            except ValueError:
                raise ConnectionError(f"invalid event {data[:100]!r}") from None
            kind = data = ""


def _os_error(error: Exception) -> OSError:
    if isinstance(error, OSError):
        return error
    return ConnectionError(f"the agent's response is incomplete: {error!r}")


def _status_error(status: int, body: bytes) -> AgentError:
    try:
        reason = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        reason = repr(body[:100])
    return AgentError(status, f"the agent responded with status {status}: {reason}")


def leader(group: str, *, address: Optional[str] = None) -> State:
    """Returns the state of the group. A group without a coordinator isn't an error, an agent that doesn't respond is (OSError)."""
    agent = Agent(group, address)
    try:
        return agent.query()[0]
    finally:
        agent.hang_up()


def health(*, address: Optional[str] = None) -> list[str]:
    """Returns why the agent makes no progress, a line for each group, and [] if it does. It fails if the agent doesn't respond."""
    agent = Agent(None, address)
    try:
        status, body = agent.request("GET", "/healthz")
    finally:
        agent.hang_up()
    if status == 200:
        return []
    if status != 503:
        raise _status_error(status, body)
    return body.decode().splitlines()
