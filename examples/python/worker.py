#!/usr/bin/env python3
"""Works while this process is coordinator. It uses the package conclave in clients/python. Usage: worker.py GROUP"""

import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python"))

import conclave


def work(tenure):
    print("leads with token", tenure.token, flush=True)
    while not tenure.lost.wait(0.2):
        # Pass the token to the resource that this step changes; it must reject lower tokens.
        print("works with token", tenure.token, flush=True)
    print("stops:", tenure.cause.value, flush=True)


if len(sys.argv) != 2:
    sys.exit(__doc__)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
conclave.run(sys.argv[1], work, stop=stop)
