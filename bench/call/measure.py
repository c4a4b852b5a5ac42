"""Calls from Python by one system, measured: prints a JSON object.

    measure.py SYSTEM noop COUNT [ADDRESS]          round_trip_us: median of COUNT calls that do nothing
    measure.py SYSTEM rate COUNT [ADDRESS]          calls_per_second with 16 calls under way
    measure.py SYSTEM efficiency ROUTINE N [ADDRESS]  local_ms, call_ms: medians of a computation here and there
    measure.py SYSTEM version                       version

SYSTEM is kumi, ray, dask, or flight. ROUTINE is dmmul (C = A B) or dgesv (A x = b); both ends compute with
the same library and one thread.
"""

import collections
import ctypes
import importlib.metadata
import json
import os
import statistics
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402: after the number of threads is said

IN_FLIGHT = 16
BLAS = "libopenblas.so.0"


def library():
    """The library that `kumi call serve` uses too."""
    return ctypes.CDLL(BLAS)


def integer(value):
    return ctypes.byref(ctypes.c_int(value))


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def dmmul(a, b):
    """C = A B, all in column order."""
    n = a.shape[0]
    c = np.empty((n, n), order="F")
    one, zero = ctypes.byref(ctypes.c_double(1)), ctypes.byref(ctypes.c_double(0))
    dims = [integer(n)] * 3
    library().dgemm_(b"N", b"N", *dims, one, pointer(a), integer(n), pointer(b), integer(n), zero, pointer(c), integer(n))
    return c


def solve(a, x):
    """X of A X = B, all in column order. X replaces B, and the factors replace A."""
    n = a.shape[0]
    pivots = np.empty(n, dtype=np.int32)
    info = ctypes.c_int(0)
    library().dgesv_(
        integer(n), integer(x.shape[1]), pointer(a), integer(n),
        pivots.ctypes.data_as(ctypes.c_void_p), pointer(x), integer(n), ctypes.byref(info),
    )
    if info.value != 0:
        raise RuntimeError(f"dgesv: {info.value}")
    return x


def dgesv(a, b):
    """The same without changing its arguments."""
    return solve(a.copy(order="F"), b.copy(order="F"))


COMPUTE = {"dmmul": dmmul, "dgesv": dgesv}


def noop():
    return None


class Kumi:
    """A server of routines."""

    def __init__(self, address):
        import kumi

        self.server = kumi.call.connect(address)

    def noop(self):
        self.server.call("noop")

    def begin(self):
        return self.server.call_async("noop")

    def end(self, handle):
        handle.result()

    def compute(self, routine, a, b):
        return self.server.call(routine, a, b)

    def close(self):
        """The connection ends with the process."""


class Ray:
    """An actor in another process of this machine."""

    def __init__(self, _address):
        import ray

        self.ray = ray
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")

        class Routines:
            def noop(self):
                return None

            def compute(self, routine, a, b):
                return COMPUTE[routine](np.asfortranarray(a), np.asfortranarray(b))

        environment = {"env_vars": {"OPENBLAS_NUM_THREADS": "1"}}
        self.actor = ray.remote(Routines).options(runtime_env=environment).remote()

    def noop(self):
        self.ray.get(self.actor.noop.remote())

    def begin(self):
        return self.actor.noop.remote()

    def end(self, handle):
        self.ray.get(handle)

    def compute(self, routine, a, b):
        return self.ray.get(self.actor.compute.remote(routine, a, b))

    def close(self):
        self.ray.shutdown()


class Dask:
    """A worker in another process of this machine."""

    def __init__(self, _address):
        import dask
        import dask.distributed

        dask.config.set({"distributed.worker.memory.terminate": False})
        self.cluster = dask.distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None)
        self.client = dask.distributed.Client(self.cluster)

    def noop(self):
        self.client.submit(noop, pure=False).result()

    def begin(self):
        return self.client.submit(noop, pure=False)

    def end(self, handle):
        handle.result()

    def compute(self, routine, a, b):
        return self.client.submit(COMPUTE[routine], a, b, pure=False).result()

    def close(self):
        self.client.close()
        self.cluster.close()


class Flight:
    """An Arrow Flight server in another process of this machine."""

    def __init__(self, _address):
        import multiprocessing

        import pyarrow
        import pyarrow.flight

        self.flight = pyarrow.flight
        context = multiprocessing.get_context("spawn")
        port, ready = context.Pipe(duplex=False)
        self.process = context.Process(target=serve_flight, args=(ready,), daemon=True)
        self.process.start()
        self.client = pyarrow.flight.connect(f"grpc://127.0.0.1:{port.recv()}")
        self.arrow = pyarrow

    def noop(self):
        list(self.client.do_action(self.flight.Action("noop", b"")))

    def begin(self):
        # The Python client cannot have calls in progress.
        self.noop()

    def end(self, handle):
        pass

    def compute(self, routine, a, b):
        schema = self.arrow.schema([("values", self.arrow.float64())])
        shapes = json.dumps([routine, a.shape, b.shape])
        writer, reader = self.client.do_exchange(self.flight.FlightDescriptor.for_command(shapes))
        writer.begin(schema)
        for array in (a, b):
            column = self.arrow.array(array.ravel(order="K"))
            writer.write_batch(self.arrow.record_batch([column], schema=schema))
        writer.done_writing()
        got = reader.read_chunk().data.column(0).to_numpy()
        writer.close()
        return got.reshape(b.shape, order="F")

    def close(self):
        self.client.close()
        self.process.kill()
        self.process.join()


def serve_flight(ready):
    import pyarrow
    import pyarrow.flight

    class Server(pyarrow.flight.FlightServerBase):
        def do_action(self, _context, _action):
            return []

        def do_exchange(self, _context, descriptor, reader, writer):
            routine, *shapes = json.loads(descriptor.command)
            arrays = (reader.read_chunk().data.column(0).to_numpy() for _ in shapes)
            a, b = (array.reshape(shape, order="F") for array, shape in zip(arrays, shapes))
            result = COMPUTE[routine](a, b)
            schema = pyarrow.schema([("values", pyarrow.float64())])
            writer.begin(schema)
            column = pyarrow.array(result.ravel(order="K"))
            writer.write_batch(pyarrow.record_batch([column], schema=schema))

    server = Server("grpc://127.0.0.1:0")
    ready.send(server.port)
    server.serve()


SYSTEMS = {"kumi": Kumi, "ray": Ray, "dask": Dask, "flight": Flight}


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure_noop(system, count):
    for _ in range(count // 10 + 1):
        system.noop()
    return {"round_trip_us": 1e6 * statistics.median(timed(system.noop) for _ in range(count))}


def measure_rate(system, count):
    def run(calls):
        under_way = collections.deque()
        for _ in range(calls):
            if len(under_way) == IN_FLIGHT:
                system.end(under_way.popleft())
            under_way.append(system.begin())
        while under_way:
            system.end(under_way.popleft())

    run(count // 10 + IN_FLIGHT)
    return {"calls_per_second": count / timed(lambda: run(count))}


def measure_efficiency(system, routine, n):
    """Measures both in turn, so that a change of the machine's speed affects both."""
    rng = np.random.default_rng(n)
    a = np.asfortranarray(rng.random((n, n)))
    b = np.asfortranarray(rng.random((n, n if routine == "dmmul" else 1)))
    a += n * np.eye(n)
    expected = COMPUTE[routine](a, b)
    if not np.allclose(system.compute(routine, a, b), expected):
        raise RuntimeError(f"{routine} gives something else there")
    here, there = [], []
    # Short calls run more often, so that the median of a few milliseconds is meaningful.
    for _ in range(27 if n < 1000 else 9):
        if routine == "dgesv":
            # A program that computes in place has its arguments already, so the copies are made before.
            factors, x = a.copy(order="F"), b.copy(order="F")
            here.append(timed(lambda: solve(factors, x)))
        else:
            here.append(timed(lambda: dmmul(a, b)))
        there.append(timed(lambda: system.compute(routine, a, b)))
    return {
        "local_ms": 1e3 * statistics.median(here),
        "call_ms": 1e3 * statistics.median(there),
        "efficiency": statistics.median(one / two for one, two in zip(here, there)),
    }


def main(name, what, *rest):
    if what == "version":
        return {"version": importlib.metadata.version({"flight": "pyarrow"}.get(name, name))}
    numbers = 1 if what in ("noop", "rate") else 2
    arguments, address = rest[:numbers], "".join(rest[numbers:])
    system = SYSTEMS[name](address)
    try:
        if what == "efficiency":
            return measure_efficiency(system, arguments[0], int(arguments[1]))
        return {"noop": measure_noop, "rate": measure_rate}[what](system, int(arguments[0]))
    finally:
        system.close()


if __name__ == "__main__":
    print("RESULT", json.dumps(main(*sys.argv[1:])), flush=True)
