"""run, which holds a session with the agent. The agent considers this process alive as long as its stream is open."""

from __future__ import annotations

import enum
import json
import logging
import math
import os
import queue
import threading
import time
from typing import Any, Callable, List, Optional, TypeVar

from ._agent import Agent, AgentError, State, backoff, now

_log = logging.getLogger("conclave")

T = TypeVar("T")

# The time between two queries while a new tenure isn't confirmed.
_QUERY_INTERVAL = 0.02
# The interval of renewals without a lease. They show the agent that this process doesn't hang.
_ALIVE_INTERVAL = 1.0
# The share of the lease by which the deadline precedes its end, and the longest such margin. The function is told twice as early.
_MARGIN_SHARE, _MARGIN_MAX = 8, 2.0


class Cause(enum.Enum):
    """Why a tenure has ended for the function."""

    STOP = "the office is being handed over"
    LOST = "the tenure has ended"
    NOT_RENEWED = "the agent didn't confirm the tenure in time"
    AGENT_GONE = "the connection to the agent is lost"
    ENDED = "this process takes part no longer"


class Tenure:
    """The time for which this process is coordinator."""

    def __init__(self, term: int, token: int, drain: float) -> None:
        self.term = term
        # The fencing token: higher than those of all earlier tenures.
        self.token = token
        # Set when the function must stop and return.
        self.lost = threading.Event()
        # None until lost is set.
        self.cause: Optional[Cause] = None
        self._drain = drain
        self._until = self._drain_end = math.inf
        # When lost was set.
        self._told = math.inf
        # When the last request was sent to which the agent responded that this process leads.
        self._led = now()
        self._interval, self._margin = _ALIVE_INTERVAL, 0.0
        # The tenure has ended, maybe after the function was asked to stop: there is nothing to renew.
        self._over = False
        # The deadline has passed.
        self._late = False
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def remaining(self) -> float:
        """Returns the seconds within which the function must have returned, as far as is known now.

        It is infinite in the mode Available, as long as the tenure lasts.
        """
        return max(0.0, min(self._until, self._drain_end) - now())

    def _on_lost(self, listener: Callable[[], None]) -> None:
        with self._lock:
            if not self.lost.is_set():
                self._listeners.append(listener)
                return
        listener()

    def _end(self, cause: Cause) -> None:
        if cause is not Cause.STOP and cause is not Cause.ENDED:
            self._over = True
        if self.cause is not None:
            return
        # The agent has decided to hand over after it has sent that response.
        self._told, self.cause = now(), cause
        self._drain_end = (self._led if cause is Cause.STOP else self._told) + self._drain
        with self._lock:
            self.lost.set()
        for listener in self._listeners:
            listener()

    def _renew(self, sent: float, until: Optional[float]) -> None:
        """Extends the lease. A response that took longer, or a lease that has become shorter, may have an earlier end, but the former
        one remains true."""
        if until is None:
            return
        self._interval = max(0.001, (until - now()) / 4)
        if not math.isfinite(self._until) or until > self._until:
            self._until, self._margin = until, min((until - sent) / _MARGIN_SHARE, _MARGIN_MAX)

    def _tell_at(self) -> float:
        return self._until - 2 * self._margin

    def _deadline(self) -> float:
        """When the function must have returned. If the process was paused, the function has a moment after it was told."""
        return max(min(self._until, self._drain_end) - self._margin, self._told + self._margin)


class _Session:
    """One stream, and what happens in it. All of it is handled by one thread, _loop. Others report to its inbox."""

    def __init__(self, agent: Agent, exit_late: bool, prepare: Optional[Callable[[float, threading.Event], object]]) -> None:
        self.agent, self.exit_late, self.prepare = agent, exit_late, prepare
        # The term of the election for which prepare was called, and what ends it, None otherwise.
        self.prepared = 0
        self.unprepare: Optional[threading.Event] = None
        self.inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
        # Tenures for which run calls the function, then why the session has ended.
        self.calls: queue.Queue[Any] = queue.Queue()
        self.id = ""
        self.drain, self.quitting = 0.0, False
        # The tenure for which the function runs.
        self.tenure: Optional[Tenure] = None
        # An event "lead" for which the function hasn't been called yet.
        self.pending_lead: Optional[dict[str, Any]] = None
        # The term for which the agent waits until the function has stopped, or 0.
        self.pending_stop = 0
        self.querying = self.introduced = self.warned = False
        self.query_at = math.inf
        self.error: Optional[Exception] = None
        self.queries: queue.Queue[Optional[str]] = queue.Queue()
        self.renewals = agent.twin()
        for body in (self._loop, self._read_stream, self._query_loop):
            threading.Thread(target=body, name="conclave", daemon=True).start()

    # The other threads.

    def _read_stream(self) -> None:
        try:
            for event in self.agent.events("/session?renews=true"):
                self.inbox.put(("event", event))
        except (OSError, AgentError) as error:
            self.inbox.put(("ended", error))

    def _query_loop(self) -> None:
        while True:
            session = self.queries.get()
            if session is None:
                self.renewals.hang_up()
                return
            sent = now()
            try:
                state, until = self.renewals.query("?session=" + session)
                self.inbox.put(("result", (sent, state, until)))
            except (OSError, AgentError) as error:
                self.inbox.put(("result", (sent, error, None)))

    def _confirm(self, term: int) -> None:
        """Tells the agent that the function has stopped, until it responds, whatever the response is."""
        agent = self.agent.twin()
        for delay in backoff():
            try:
                agent.request("POST", f"/session/{self.id}/stopped", json.dumps({"term": term}).encode())
            except OSError:
                if self.error is None:
                    time.sleep(delay)
                    continue
            agent.hang_up()
            return

    # The loop.

    def _loop(self) -> None:
        while self.error is None or self.tenure is not None:
            self._handle_time()
            try:
                kind, value = self.inbox.get(timeout=self._timeout())
            except queue.Empty:
                continue
            if kind == "returned":
                self._handle_return(value)
            elif kind == "abort":
                self.tenure = None
                self._close(ConnectionAbortedError(Cause.ENDED.value))
            elif kind == "quit":
                self.quitting = True
                if self.tenure is None:
                    self._close(ConnectionAbortedError(Cause.ENDED.value))
                else:
                    self.tenure._end(Cause.ENDED)
            elif self.error is not None:
                pass  # The session has ended. Only the function is still running.
            elif kind == "event":
                try:
                    self._handle_event(*value)
                except (KeyError, TypeError) as error:
                    self._close(ConnectionError(f"invalid event {value[0]} {value[1]!r}: {error!r}"))
            elif kind == "ended":
                self._close(value)
            elif kind == "result":
                self.querying = False
                self._handle_result(*value)
        self._end_preparation(self.prepared)
        self.calls.put(None)

    def _timeout(self) -> Optional[float]:
        """Returns the time until _handle_time has something to do.

        A wait doesn't advance while the machine is suspended, but the time does. The next renewal notices that.
        """
        at, tenure = self.query_at, self.tenure
        if tenure is not None:
            if not tenure.lost.is_set():
                at = min(at, tenure._tell_at())
            elif not tenure._late:
                at = min(at, tenure._deadline())
            if self.error is None:
                at = min(at, tenure._drain_end)
        return None if at == math.inf else max(0.0, at - now())

    def _handle_time(self) -> None:
        at, tenure = now(), self.tenure
        if tenure is not None:
            if not tenure.lost.is_set() and at >= tenure._tell_at():
                tenure._end(Cause.NOT_RENEWED)
            if tenure.lost.is_set() and at >= tenure._deadline() and not tenure._late:
                tenure._late = True
                if self.exit_late and self.drain:
                    _exit_late(self.agent.group or "", tenure)
            if self.error is None and at >= tenure._drain_end:
                self._close(TimeoutError("the function didn't return within the drain timeout"))
        if at >= self.query_at:
            self._query()

    def _close(self, error: Exception) -> None:
        """Ends the session: the agent considers this process dead."""
        if self.error is None:
            self.error = error
            self.query_at = math.inf
            self.agent.close()
            self.renewals.close()
            self.queries.put(None)
        if self.tenure is not None:
            self.tenure._end(Cause.AGENT_GONE)

    def _handle_event(self, kind: str, data: Any) -> None:
        """Handles an event of the agent. Newer agents may send unknown kinds, which are ignored."""
        if kind == "session":
            self.id, self.drain = data["session"], data["drainMillis"] / 1000
            if self.tenure is not None:
                self.tenure._drain = self.drain
            self._query()
        elif kind == "elect":
            self._prepare(data["term"], data["withinMillis"] / 1000)
        elif kind == "follow":
            self._end_preparation(data["term"])
        elif kind == "lead":
            self._revoke(data["term"] - 1, Cause.LOST)
            self.pending_lead = data
            self._query()
        elif kind == "stop":
            self._revoke(data["term"], Cause.STOP)
            self.pending_stop = data["term"]
            self._confirm_stop()
        elif kind == "lost":
            self._revoke(data["term"], Cause.LOST)
            if self.pending_stop <= data["term"]:
                self.pending_stop = 0

    def _prepare(self, term: int, within: float) -> None:
        """Calls prepare, unless what it has prepared for an earlier election still counts. Nothing waits for it."""
        self.prepared = term
        if self.prepare is not None and self.unprepare is None:
            self.unprepare = threading.Event()
            threading.Thread(target=self.prepare, args=(within, self.unprepare), name="conclave", daemon=True).start()

    def _end_preparation(self, term: int) -> None:
        if self.unprepare is not None and self.prepared <= term:
            self.unprepare.set()
            self.unprepare = None

    def _revoke(self, term: int, cause: Cause) -> None:
        """Ends all tenures up to a term."""
        if self.pending_lead is not None and self.pending_lead["term"] <= term:
            self.pending_lead = None
        if self.tenure is None:
            self._end_preparation(term)
        elif self.tenure.term <= term:
            self.tenure._end(cause)

    def _query(self) -> None:
        """Queries the coordinator if there is a tenure to confirm or renew, or a session to introduce, unless a query is in progress.

        A pending tenure is renewed while the function of the former one returns: the agent closes a session that doesn't answer.
        """
        self.query_at = math.inf
        renew = self.tenure is not None and not self.tenure._over
        introduce = self.tenure is None and not self.introduced
        if not self.querying and (self.pending_lead is not None or renew or introduce):
            self.querying = self.introduced = True
            self.queries.put(self.id)

    def _handle_result(self, sent: float, state: Any, until: Optional[float]) -> None:
        """Updates the tenure, or starts the pending one if the agent confirms it."""
        tenure, lead = self.tenure, self.pending_lead
        if tenure is not None:
            if not tenure._over:
                self._update(tenure, sent, state, until)
            elif lead is not None:
                self.query_at = now() + tenure._interval
        elif lead is not None and not self.quitting:
            confirmed = isinstance(state, State) and state.leading and state.token == lead["token"]
            if confirmed and (until is None or now() < until):
                self.pending_lead = None
                self.tenure = tenure = Tenure(lead["term"], lead["token"], self.drain)
                tenure._led = sent
                tenure._renew(sent, until)
                self.query_at = now() + tenure._interval
                self.calls.put(tenure)
                return
            # The query failed, or its result is older or newer than the event. If the tenure has ended, the agent sends an event.
            if confirmed and not self.drain and not self.warned:
                self.warned = True
                _log.warning("cannot lead in group %s: its drainMillis is 0, so a handover doesn't wait for this process", self.agent.group)
            self.query_at = now() + _QUERY_INTERVAL

    def _update(self, tenure: Tenure, sent: float, state: Any, until: Optional[float]) -> None:
        """Renews the tenure, or ends it before the agent's event arrives.

        It is renewed while the function stops, too: the agent must not take this process for one that hangs, and the lease may end
        before the drain timeout.
        """
        if isinstance(state, AgentError) and state.final:
            # The agent no longer has this session, so it considers this process dead.
            self._revoke(tenure.term, Cause.LOST)
        elif isinstance(state, State):
            if state.leading and state.token == tenure.token:
                if not tenure.lost.is_set():
                    tenure._led = sent
                tenure._renew(sent, until)
            elif not state.leading and state.coordinator == state.self and state.term == tenure.term:
                # The agent still holds the office but may not act: it is handing over.
                tenure._end(Cause.STOP)
                tenure._renew(sent, until)
            else:
                self._revoke(tenure.term, Cause.LOST)
        if not tenure._over or self.pending_lead is not None:
            self.query_at = now() + tenure._interval

    def _handle_return(self, voluntary: bool) -> None:
        """Continues the session after the function has returned."""
        tenure, self.tenure, self.query_at = self.tenure, None, math.inf
        if tenure is not None:
            self._end_preparation(tenure.term)
        if self.error is not None:
            return
        if voluntary or self.quitting:
            self._close(ConnectionAbortedError(Cause.ENDED.value))
        elif tenure is not None and tenure.cause is Cause.NOT_RENEWED:
            # The agent may still assume that the function acts. It learns otherwise when the session ends.
            self._close(TimeoutError(Cause.NOT_RENEWED.value))
        else:
            self._confirm_stop()
            self._query()

    def _confirm_stop(self) -> None:
        if self.pending_stop and self.tenure is None:
            threading.Thread(target=self._confirm, args=(self.pending_stop,), name="conclave", daemon=True).start()
            self.pending_stop = 0


def _exit_late(group: str, tenure: Tenure) -> None:
    """Exits at once. The message must not delay that, if nobody reads it."""
    cause = tenure.cause.value if tenure.cause else ""
    text = f"conclave: exiting: the function for group {group} hasn't returned in time, although {cause}\n"
    message = threading.Thread(target=os.write, args=(2, text.encode()), daemon=True)
    message.start()
    message.join(0.01)
    os._exit(1)


def run(
    group: str,
    lead: Callable[[Tenure], T],
    *,
    address: Optional[str] = None,
    stop: Optional[threading.Event] = None,
    exit_late: bool = True,
    prepare: Optional[Callable[[float, threading.Event], object]] = None,
) -> Optional[T]:
    """Takes part in the election of the group's coordinator until stop is set, or until lead returns before its tenure has ended.

    Each time this process has become coordinator, run calls lead with the tenure, in this thread. When tenure.lost is set, lead must
    return. Its result then is ignored, and run waits for the next tenure. tenure.cause is the reason. If lead returns before, the agent
    gives up the office, and run returns or raises what lead has. An exception of a signal handler ends run, too.

    If lead hasn't returned shortly before another process may be coordinator, the process exits with status 1, unless exit_late is
    False.

    As soon as this process is elected, and if a former lease has to end before it may lead, run calls prepare in a thread of its own,
    with the seconds within which it leads or isn't elected any more. It is for what needs no office, such as filling caches. Nothing
    waits for it. Its event is set when the process isn't elected any more, and otherwise at the end of the tenure.

    run opens a session with the agent, and a new one whenever the session breaks. It waits for an agent that it cannot reach. If the
    agent's first response is that the group doesn't exist, it raises AgentError. When stop is set, run waits for lead and returns None.
    """
    agent = Agent(group, address)
    finished = threading.Event()
    sessions: List[_Session] = []
    if stop is not None:
        threading.Thread(target=_forward, args=(stop, finished, sessions), name="conclave", daemon=True).start()
    delays, exists, logged = backoff(), False, False
    try:
        while stop is None or not stop.is_set():
            start = now()
            session = _Session(agent.twin(), exit_late, prepare)
            sessions[:] = [session]
            if stop is not None and stop.is_set():
                session.inbox.put(("quit", None))
            ended, result = _lead_in(session, lead)
            if ended:
                return result
            error, exists = session.error, exists or session.id != ""
            if isinstance(error, AgentError) and error.final and not exists:
                raise AgentError(error.status, f"cannot join group {group}: {error}") from None
            if stop is not None and stop.is_set():
                break
            if session.id or not logged:
                _log.warning("no session with agent %s for group %s; retrying: %s", agent.address, group, error)
                logged = True
            if session.id and now() - start > 1:
                delays = backoff()
            if stop is None:
                time.sleep(next(delays))
            else:
                stop.wait(next(delays))
        return None
    finally:
        finished.set()


def _lead_in(session: _Session, lead: Callable[[Tenure], T]) -> tuple[bool, Optional[T]]:
    """Calls the function for each tenure of a session, until the session has ended or the function has returned before its tenure."""
    try:
        while True:
            tenure: Optional[Tenure] = session.calls.get()
            if tenure is None:
                return False, None
            failed: Optional[Exception] = None
            result = None
            try:
                result = lead(tenure)
            except Exception as error:
                failed = error
            voluntary = not tenure.lost.is_set()
            session.inbox.put(("returned", voluntary))
            if voluntary:
                session.calls.get()  # The session has ended.
                if failed is not None:
                    raise failed
                return True, result
            if failed is not None:
                _log.warning("the function for group %s failed after its tenure %d", session.agent.group, tenure.token, exc_info=failed)
    except BaseException:
        session.inbox.put(("abort", None))
        raise


def _forward(stop: threading.Event, finished: threading.Event, sessions: list[_Session]) -> None:
    """Tells the present session to stop."""
    while not finished.is_set():
        if stop.wait(1):
            for session in sessions:
                session.inbox.put(("quit", None))
            return
