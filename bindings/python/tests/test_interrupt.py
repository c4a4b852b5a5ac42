"""Ctrl-C, and other signals, while a call waits."""

import os
import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import kumi
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever began the tests may ignore it.
kumi.init()
window = kumi.window(1024, np.uint8)
fifo = window.fifo(0, 64)

def soon(number, ready=threading.Event()):
    def send():
        time.sleep(0.1)  # The call below waits by now; if not, the signal comes earlier yet.
        os.kill(os.getpid(), number)
    threading.Thread(target=send).start()
"""

WAITS = ["kumi.recv()", "window.wait_notify(1, 1)", "fifo.pop()", "next(fifo)"]


def run(text: str, spin: str = "adaptive") -> subprocess.CompletedProcess[str]:
    """Runs a program as a job of one rank; one that nothing ends fails."""
    variables = {**os.environ, "KUMI_SINGLETON": "1", "KUMI_SPIN": spin}
    command = [sys.executable, "-c", BEGIN + text]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("spin", ["adaptive", "infinite", "0"])
@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_call_that_waits_and_the_job_goes_on(wait: str, spin: str) -> None:
    text = f"""
try:
    soon(signal.SIGINT)
    {wait}
except KeyboardInterrupt:
    kumi.send(0, b"still there")
    window.append(0, 0, b"record")
    kumi.barrier()
    print(kumi.recv().data, fifo.pop().data)
"""
    done = run(text, spin)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "b'still there' b'record'\n"


def test_a_program_that_does_not_catch_it_ends_as_python_says() -> None:
    done = run("soon(signal.SIGINT)\nkumi.recv()")
    assert done.returncode == -signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_a_handler_that_raises_nothing_does_not_end_the_call() -> None:
    text = """
def handler(number, frame):
    try:
        kumi.rank()
    except kumi.KumiError as error:
        print(error, flush=True)
        soon(signal.SIGINT)
    else:
        soon(number)  # The call below does not wait yet.

signal.signal(signal.SIGUSR1, handler)
try:
    soon(signal.SIGUSR1)
    kumi.recv()
except KeyboardInterrupt:
    print("interrupted", kumi.probe())
"""
    done = run(text)
    assert (done.returncode, done.stderr) == (0, "")
    told = "called by a signal handler of Python while another call waits"
    assert done.stdout == f"{told}\ninterrupted None\n"
