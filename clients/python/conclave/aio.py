"""run, watch, leader and health for asyncio. They are those of package conclave, whose threads do the work.

    await conclave.aio.run("ledger", work)

When the tenure ends, the task of the function is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, AsyncIterator, Awaitable, Callable, Optional, TypeVar

from . import _agent, _session, _watch
from ._agent import State
from ._session import Tenure

__all__ = ["health", "leader", "run", "watch"]

T = TypeVar("T")


async def leader(group: str, *, address: Optional[str] = None) -> State:
    """See conclave.leader."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: _agent.leader(group, address=address))


async def health(*, address: Optional[str] = None) -> list[str]:
    """See conclave.health."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: _agent.health(address=address))


async def run(
    group: str,
    lead: Callable[[Tenure], Awaitable[T]],
    *,
    address: Optional[str] = None,
    exit_late: bool = True,
    prepare: Optional[Callable[[float], Awaitable[object]]] = None,
) -> Optional[T]:
    """See conclave.run. When this coroutine is cancelled, it cancels lead, waits for it, and closes the session.

    The session has threads of its own. So this process stays coordinator while the loop is blocked; and if that takes too long for
    lead to be cancelled, the process exits. The task of prepare is cancelled in place of the event.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()

    async def supervise(tenure: Tenure) -> Optional[T]:
        task = asyncio.ensure_future(lead(tenure))
        tenure._on_lost(lambda: _call(loop, task.cancel))
        try:
            return await task
        except asyncio.CancelledError:
            if tenure.lost.is_set():
                return None
            raise

    def call(tenure: Tenure) -> Optional[T]:
        return asyncio.run_coroutine_threadsafe(supervise(tenure), loop).result()

    async def preparing(within: float) -> None:
        try:
            if prepare is not None:
                await prepare(within)
        except Exception as error:
            _session._log.warning("the preparation for group %s failed", group, exc_info=error)

    def begin(within: float, ended: threading.Event) -> None:
        preparation = asyncio.run_coroutine_threadsafe(preparing(within), loop)
        ended.wait()
        preparation.cancel()

    return await _in_thread(
        lambda: _session.run(group, call, address=address, stop=stop, exit_late=exit_late, prepare=begin if prepare else None), stop
    )


async def watch(group: str, *, address: Optional[str] = None) -> AsyncIterator[Optional[State]]:
    """See conclave.watch. It ends with the loop that iterates over it."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    states: asyncio.Queue[tuple[Optional[State], Optional[BaseException]]] = asyncio.Queue()

    def pump() -> None:
        try:
            for state in _watch.watch(group, address=address, stop=stop):
                _call(loop, states.put_nowait, (state, None))
        except Exception as error:
            _call(loop, states.put_nowait, (None, error))

    threading.Thread(target=pump, name="conclave", daemon=True).start()
    try:
        while True:
            state, error = await states.get()
            if error is not None:
                raise error
            yield state
    finally:
        stop.set()


async def _in_thread(body: Callable[[], T], stop: threading.Event) -> T:
    """Runs a function in a thread. If the coroutine is cancelled, it sets stop, and waits for the function."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(method: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            method(value)

    def thread() -> None:
        try:
            result = body()
        except BaseException as error:
            _call(loop, settle, done.set_exception, error)
        else:
            _call(loop, settle, done.set_result, result)

    threading.Thread(target=thread, name="conclave", daemon=True).start()
    cancelled: Optional[asyncio.CancelledError] = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set()
    if cancelled is not None:
        done.exception()  # It was retrieved.
        raise cancelled
    return done.result()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Calls a function in the loop, unless that is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass
