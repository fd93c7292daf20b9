#!/usr/bin/env python3
"""Takes part in the election of a group's coordinator, and works while it is coordinator.

Usage: worker.py GROUP

It requires Python 3.8. CONCLAVE_AGENT is the URL of the agent, by default
http://127.0.0.1:7374, or a Unix socket, such as unix:///run/conclave/agent.sock.
"""
import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.parse

AGENT = urllib.parse.urlsplit(os.environ.get("CONCLAVE_AGENT", "http://127.0.0.1:7374"))
SILENCE = 15  # seconds; an agent sends data at least every five seconds


class SocketConnection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(AGENT.path)


def connect(timeout):
    """Returns a connection to the agent. http.client ignores proxy settings."""
    if AGENT.scheme == "unix":
        return SocketConnection("localhost", timeout=timeout)
    return http.client.HTTPConnection(AGENT.hostname, AGENT.port, timeout=timeout)


def now():
    """Returns a monotonic time that includes suspension of the machine, unlike time.monotonic on Linux."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(*words):
    print(*words, flush=True)


class Tenure:
    """The time as coordinator. It lasts until `until`; each query of the agent renews it."""

    def __init__(self, group, session, token, give_up):
        self.group, self.session, self.token, self.give_up = group, session, token, give_up
        self.until = 0.0  # not confirmed yet
        self.over = threading.Event()
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.renew, self.lead)]
        for thread in self.threads:
            thread.start()

    def may_act(self):
        return not self.over.is_set() and now() < self.until

    def end(self):
        """Ends the tenure, and returns when the work has stopped."""
        self.over.set()
        for thread in self.threads:
            thread.join()

    def renew(self):
        agent = connect(timeout=2)
        pause = 0.02
        while not self.over.wait(pause):
            sent = now()  # before the request, because the duration of the response is unknown
            try:
                agent.request("GET", f"/v1/groups/{self.group}/leader?session={self.session}")
                state = json.loads(agent.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                agent.close()  # and retry with a new connection until the tenure expires
                continue
            if state.get("leading") and state["token"] == self.token:
                # In the mode Available, only an event ends a tenure.
                left = state.get("remainingMillis", float("inf")) / 1000
                self.until = max(self.until, sent + left)
                pause = max(0.02, min(left / 4, 1))
            elif self.until:
                self.over.set()
        agent.close()

    def lead(self):
        while not self.may_act():
            if self.over.wait(0.01):
                return  # the tenure ended before it was confirmed
        say("leads with token", self.token)
        while self.may_act():
            # Pass the token to the resource that this step changes; it must reject lower tokens.
            say("works with token", self.token)
            self.over.wait(0.2)
        say("stops")
        if not self.over.is_set():
            self.give_up()  # not renewed in time; the agent may assume that this process still acts


def events(stream):
    """Yields the events of a stream as (kind, data)."""
    kind, data = "", ""
    for line in stream:
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            kind = value
        elif field == "data":
            data += value
        elif not field and data:
            yield kind, json.loads(data)
            kind, data = "", ""


def session(group):
    """Takes part until the stream ends. The agent then considers this process dead."""
    agent = connect(timeout=SILENCE)
    tenure, name = None, ""

    def hang_up():
        agent.sock.shutdown(socket.SHUT_RDWR)

    try:
        agent.request("GET", f"/v1/groups/{group}/session?renews=true")
        stream = agent.getresponse()
        if stream.status != 200:
            raise OSError(stream.read().decode().strip())
        for kind, data in events(stream):
            if kind == "session":
                if not name:
                    introduce(group, data["session"])
                name = data["session"]
            elif kind in ("lead", "stop", "lost"):
                if tenure:
                    tenure.end()
                tenure = Tenure(group, name, data["token"], hang_up) if kind == "lead" else None
                if kind == "stop":
                    stopped(group, name, data["term"])
    finally:
        if tenure:
            tenure.end()
        agent.close()


def introduce(group, name):
    """Shows the agent that an application has opened the session. From now on, the agent is eligible only while one is open."""
    agent = connect(timeout=2)
    agent.request("GET", f"/v1/groups/{group}/leader?session={name}")
    agent.getresponse().read()
    agent.close()


def stopped(group, name, term):
    """Confirms that the work has stopped. The successor starts only after that."""
    agent = connect(timeout=2)
    agent.request("POST", f"/v1/groups/{group}/session/{name}/stopped", json.dumps({"term": term}))
    agent.getresponse().read()
    agent.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            try:
                session(urllib.parse.quote(sys.argv[1], safe=""))
            except (OSError, http.client.HTTPException, ValueError) as error:
                print("no session:", error, file=sys.stderr)
            time.sleep(random.uniform(0.1, 1))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
