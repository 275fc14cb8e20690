"""What the fork server of a study loads once for all workers: PyTorch takes seconds."""

from importlib.util import find_spec

from calibrant._core.preloading import load

load("calibrant.train")
if find_spec("pandas"):  # the first table of Arrow loads it
    load("pandas")
