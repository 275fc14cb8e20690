"""What the fork server of a measurement loads once for all workers."""

from calibrant._core.preloading import load

load("pyarrow.parquet")
load("scipy.sparse")
load("calibrant.streaming")
