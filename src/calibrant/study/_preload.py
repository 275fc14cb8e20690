"""What the fork server of a study loads once for all workers: PyTorch takes seconds."""

from calibrant._core.preloading import load

load("calibrant.train")
