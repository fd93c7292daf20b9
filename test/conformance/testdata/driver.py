"""The driver of the Python client, with threads. With ASYNCIO=true, it uses conclave.aio for run. driver_test.go has the protocol."""

import logging
import os
import queue
import sys
import threading

import conclave

in_loop = os.environ.get("ASYNCIO") == "true"
if in_loop:
    import asyncio

    import conclave.aio

name, group = sys.argv[1:3]
exit_late = os.environ.get("EXIT_LATE") == "true"
stop = threading.Event()
hold = threading.Event()
orders: "queue.Queue[str]" = queue.Queue()  # what the function is to do: told, return or fail
tenure = None
task = None


def say(*words):
    os.write(1, (" ".join([name, *map(str, words)]) + "\n").encode())


def lead(given):
    global tenure
    tenure = given
    say("lead", given.token, os.getpid())
    given._on_lost(lambda: orders.put("told"))
    return obey(orders.get)


def prepare(within, ended):
    say("elected", round(within * 1000))
    ended.wait()
    say("unelected")


def obey(get):
    told = False
    while True:
        order = get()
        if order == "told":
            told = True
            say("told", tenure.cause.name.lower().replace("_", "-"))
            if hold.is_set():
                continue
        say("done")
        if order == "fail":
            raise ValueError("boom")
        return None


def run():
    try:
        conclave.run(group, lead, stop=stop, exit_late=exit_late, prepare=prepare)
        say("returned nil")
    except Exception as error:
        say("returned", error)


async def alead(given):
    global tenure
    tenure = given
    say("lead", given.token, os.getpid())
    loop = asyncio.get_running_loop()
    mine = asyncio.Queue()
    pump = threading.Thread(target=lambda: loop.call_soon_threadsafe(mine.put_nowait, orders.get()), daemon=True)
    pump.start()
    try:
        order = await mine.get()
    except asyncio.CancelledError:
        say("told", given.cause.name.lower().replace("_", "-"))
        order = "return"
        if hold.is_set():
            order = await mine.get()
        else:
            orders.put("return")  # for the pump
    say("done")
    if order == "fail":
        raise ValueError("boom")


async def aprepare(within):
    say("elected", round(within * 1000))
    try:
        await asyncio.Event().wait()
    finally:
        say("unelected")


async def arun():
    global task
    task = asyncio.current_task()
    try:
        await conclave.aio.run(group, alead, exit_late=exit_late, prepare=aprepare)
        say("returned nil")
    except asyncio.CancelledError:
        say("returned nil")
    except Exception as error:
        say("returned", error)


def watch():
    try:
        for state in conclave.watch(group, stop=stop):
            say("watch", "gone" if state is None else f"{state.coordinator or '-'} {state.term}")
        say("watch end")
    except Exception as error:
        say("watch", error)


def aloop():
    asyncio.run(arun())


def ask(kind, question):
    try:
        say(kind, question())
    except Exception as error:
        say(kind, "error:", error)


def main():
    logging.basicConfig()
    for line in sys.stdin:
        command = line.strip()
        if command == "run":
            threading.Thread(target=aloop if in_loop else run, daemon=True).start()
        elif command == "watch":
            threading.Thread(target=watch, daemon=True).start()
        elif command == "act":
            acts = tenure is not None and not tenure.lost.is_set()
            say("act", f"{tenure.token} {round(min(1000, tenure.remaining()) * 1000)}" if acts else "idle")
        elif command == "hold":
            hold.set()
        elif command == "quit":
            stop.set()
            if task:
                task.get_loop().call_soon_threadsafe(task.cancel)
        elif command in ("return", "fail"):
            orders.put(command)
        elif command == "leader":
            ask("leader", lambda: "{0.coordinator} {0.leading} {0.token}".format(conclave.leader(group)).lower())
        elif command == "health":
            ask("health", lambda: len(conclave.health()))


main()
