"""watch, which follows the state of a group."""

from __future__ import annotations

import threading
from typing import Iterator, Optional

from ._agent import Agent, AgentError, State, backoff, parse_state


def watch(group: str, *, address: Optional[str] = None, stop: Optional[threading.Event] = None) -> Iterator[Optional[State]]:
    """Yields the state of the group, and then each change, in order. After an interruption, it continues with the current state.

    It yields None once when it cannot reach the agent: the last state may then be outdated. The state follows as soon as the agent is
    reachable again. If the agent's first response is that the group doesn't exist, watch raises AgentError. It ends when stop is set.
    """
    agent = Agent(group, address)
    finished = threading.Event()
    stop = stop or threading.Event()
    watcher = _Watcher(agent, stop)
    threading.Thread(target=_close_at, args=(stop, finished, watcher), name="conclave", daemon=True).start()
    try:
        yield from watcher.run()
    finally:
        finished.set()


class _Watcher:
    def __init__(self, agent: Agent, stop: threading.Event) -> None:
        self.agent, self.stop = agent, stop
        self.stream = agent.twin()

    def run(self) -> Iterator[Optional[State]]:
        delays, exists, reported = backoff(), False, False
        last: Optional[State] = None
        while not self.stop.is_set():
            self.stream = self.agent.twin()
            accepted, error = False, None
            try:
                for _, data in self.stream.events("/watch"):
                    if not accepted:
                        # An interruption, for example because the agent restarts, is reported only if the next attempt fails.
                        accepted, exists, reported, delays = True, True, False, backoff()
                        continue
                    state = parse_state(data)
                    if state != last:
                        last = state
                        yield state
                    if self.stop.is_set():
                        return
            except (OSError, AgentError) as failure:
                error = failure
            if self.stop.is_set():
                return
            if isinstance(error, AgentError) and error.final and not exists:
                raise AgentError(error.status, f"cannot watch group {self.agent.group}: {error}") from None
            if not accepted and not reported:
                # Even if the state hasn't changed, it shows that the agent is reachable again.
                reported, last = True, None
                yield None
            self.stop.wait(next(delays))


def _close_at(stop: threading.Event, finished: threading.Event, watcher: _Watcher) -> None:
    while not finished.is_set():
        if stop.wait(1):
            while not finished.wait(0.1):
                watcher.stream.close()
            return
