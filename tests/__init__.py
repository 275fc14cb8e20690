"""The tests. Their arrays are small, and several processes share the cores of a machine.

Threads of PyTorch and BLAS that wait for one another took a third of all the time, so each process
has one. It is set here because this file is read before anything loads either.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
