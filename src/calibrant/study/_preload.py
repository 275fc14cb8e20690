"""What the fork server of a study loads once for all workers: PyTorch takes seconds."""

from importlib.util import find_spec

from calibrant._core.preloading import load

load("calibrant.train")
# The first optimiser of a process loads the compiler, and the first table of Arrow loads pandas.
load("torch._dynamo")
if find_spec("pandas"):
    load("pandas")
