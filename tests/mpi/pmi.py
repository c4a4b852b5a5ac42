"""A rank that speaks PMI in the version that its argument names, as MPICH and Intel MPI do.

With `wait FOLDER` it says so before each exchange, and waits there for a file with the number of the exchange and its own.
"""
import os
import socket
import sys
import time

version = int(sys.argv[1])
how = sys.argv[2] if len(sys.argv) > 2 else "exchange"
rank = int(os.environ["PMI_RANK"])
size = int(os.environ["PMI_SIZE"])
server = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw", newline="")


def ask_one(line):
    server.write(line + "\n")
    server.flush()
    return server.readline().strip()


def ask_two(text):
    server.write(f"{len(text):>6}{text}")
    server.flush()
    return server.read(int(server.read(6)))


def fields(text, separator):
    return dict(part.split("=", 1) for part in text.split(separator) if "=" in part)


answer = fields(ask_one(f"cmd=init pmi_version={version} pmi_subversion=0"), " ")
assert answer["cmd"] == "response_to_init" and answer["pmi_version"] == str(version), answer
if version == 1:
    put = lambda key, value: ask_one(f"cmd=put kvsname=k key={key} value={value}")
    get = lambda key: fields(ask_one(f"cmd=get kvsname=k key={key}"), " ")["value"]
    fence = lambda: ask_one("cmd=barrier_in")
    finalize = lambda: ask_one("cmd=finalize")
else:
    answer = fields(ask_two("cmd=fullinit;threaded=FALSE;"), ";")
    assert (answer["rank"], answer["size"]) == (str(rank), str(size)), answer
    put = lambda key, value: ask_two(f"cmd=kvs-put;key={key};value={value};")
    get = lambda key: fields(ask_two(f"cmd=kvs-get;key={key};"), ";")["value"]
    fence = lambda: ask_two("cmd=kvs-fence;")
    finalize = lambda: ask_two("cmd=finalize;")
if how == "abort" and rank == size - 1:
    server.write("cmd=abort exitcode=9 message=enough\n")
    server.flush()
for turn in range(2):
    if how == "wait":
        print("rank", rank, "waits before exchange", turn, flush=True)
        while not os.path.exists(os.path.join(sys.argv[3], f"{turn}-{rank}")):
            time.sleep(0.01)
    put(f"r{rank}.{turn}", f"v{rank}.{turn}")
    fence()
    assert all(get(f"r{other}.{turn}") == f"v{other}.{turn}" for other in range(size))
if how == "nonsense" and rank == size - 1:
    print(ask_one("cmd=fly"))
if how != "leave":
    finalize()
print(f"rank {rank} of {size} knows all", get("PMI_process_mapping") if version == 1 and how == "mapping" else "")
