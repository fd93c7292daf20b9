#!/usr/bin/env python3
"""Takes part in the election of a group's coordinator, and works while it leads.

Usage: worker.py GROUP

It needs nothing but Python 3.8. The agent is at CONCLAVE_AGENT, or at
http://127.0.0.1:7374.
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
SILENCE = 15  # seconds; a live agent says something every five


def connect(timeout):
    """Straight to the agent: http.client asks no proxy."""
    return http.client.HTTPConnection(AGENT.hostname, AGENT.port, timeout=timeout)


def now():
    """Goes on while the machine is suspended, unlike time.monotonic on Linux."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(*words):
    print(*words, flush=True)


class Tenure:
    """A time as coordinator. It may act until `until`, which is put off by asking the agent."""

    def __init__(self, group, token, give_up):
        self.group, self.token, self.give_up = group, token, give_up
        self.until = 0.0  # not confirmed yet
        self.over = threading.Event()
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.renew, self.lead)]
        for thread in self.threads:
            thread.start()

    def may_act(self):
        return not self.over.is_set() and now() < self.until

    def end(self):
        """Returns when nothing acts any more."""
        self.over.set()
        for thread in self.threads:
            thread.join()

    def renew(self):
        agent = connect(timeout=2)
        pause = 0.02
        while not self.over.wait(pause):
            asked = now()  # before the request: nobody knows how long the answer took
            try:
                agent.request("GET", f"/v1/groups/{self.group}/leader")
                state = json.loads(agent.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                agent.close()  # and try again, on another connection, until the time is up
                continue
            if state.get("leading") and state["token"] == self.token:
                # In the mode Available nothing ends a tenure but an event.
                left = state.get("remainingMillis", float("inf")) / 1000
                self.until = max(self.until, asked + left)
                pause = min(left / 4, 1)
            elif self.until:
                self.over.set()
        agent.close()

    def lead(self):
        while not self.may_act():
            if self.over.wait(0.01):
                return  # before it began
        say("leads with token", self.token)
        while self.may_act():
            # Show the token to what is changed here: it has to refuse lower ones.
            say("works with token", self.token)
            self.over.wait(0.2)
        say("stops")
        if not self.over.is_set():
            self.give_up()  # not renewed in time; the agent may believe that somebody acts here


def events(stream):
    """Yields (event, data) as they come."""
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
    """Takes part until the stream breaks, which tells the agent that this process is dead."""
    agent = connect(timeout=SILENCE)
    tenure, name = None, ""

    def hang_up():
        agent.sock.shutdown(socket.SHUT_RDWR)

    try:
        agent.request("GET", f"/v1/groups/{group}/session")
        stream = agent.getresponse()
        if stream.status != 200:
            raise OSError(stream.read().decode().strip())
        for kind, data in events(stream):
            if kind == "session":
                name = data["session"]
            elif kind in ("lead", "stop", "lost"):
                if tenure:
                    tenure.end()
                tenure = Tenure(group, data["token"], hang_up) if kind == "lead" else None
                if kind == "stop":
                    stopped(group, name, data["term"])
    finally:
        if tenure:
            tenure.end()
        agent.close()


def stopped(group, name, term):
    """Only then does the successor begin."""
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
