"""Takes part in the election of a group's coordinator, by means of the agent that runs beside this process.

    import conclave

    def work(tenure):
        while not tenure.lost.wait(0.2):
            step(tenure.token)

    conclave.run("ledger", work)

run calls the function each time this process has become coordinator, in the thread that has called run. conclave.aio has the same
for asyncio, where the task of the function is cancelled. watch and leader report the coordinator, health the state of the agent.

The agent's address is that of the argument address, or else of the environment variable CONCLAVE_AGENT.

A thread can't be cancelled in Python. The function is told by tenure.lost, and must return before tenure.remaining() is over. If it
doesn't, the process exits with status 1 shortly before: another process may be coordinator afterwards. With exit_late=False, it
goes on running, and only the token protects the data. It does so in any case if the process was paused, or if a C extension holds
the interpreter's lock. So send the token with each write, and let the storage reject lower ones.
"""

from ._agent import AgentError, State, health, leader
from ._session import Cause, Tenure, run
from ._watch import watch

__all__ = ["AgentError", "Cause", "State", "Tenure", "health", "leader", "run", "watch"]
