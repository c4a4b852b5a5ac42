# EASY backfilling by a simulator in Python whose sources the user has: pyss, as it is under Python 2
# or made ready for Python 3 by 2to3.
#
#   python easy.py SRC TRACE PROCESSORS
#
# SRC is the folder that has its packages `base` and `schedulers`.
import sys

source, trace, processors = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, source)

from base import prototype
from base.workload_parser import parse_lines
from schedulers.easy_scheduler import EasyBackfillScheduler
from schedulers.simulator import Simulator

if sys.version_info[0] > 2:
    # Python 3 does not compare by `__cmp__` any more, which 2to3 leaves alone.
    import builtins

    builtins.cmp = lambda one, other: (one > other) - (one < other)
    for entry in list(vars(prototype).values()):
        if isinstance(entry, type) and "__cmp__" in vars(entry):
            entry.__lt__ = lambda one, other: one.__cmp__(other) < 0

with open(trace) as lines:
    jobs = list(prototype._job_inputs_to_jobs(parse_lines(lines), processors))
simulator = Simulator(jobs, processors, EasyBackfillScheduler(processors))
simulator.run()
over = simulator.terminated_jobs
waits = sum(job.start_to_run_at_time - job.submit_time for job in over)
print("jobs %d" % len(over))
print("mean_wait_s %.9f" % (float(waits) / len(over)))
