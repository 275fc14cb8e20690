"""Metrics of data larger than memory: accumulators that merge, and Parquet read batch by batch."""

from calibrant.streaming._accumulator import Accumulator
from calibrant.streaming._executors import (
    FILE_EXECUTORS,
    FileExecutor,
    LocalProcesses,
    RayTasks,
    accumulate_files,
)
from calibrant.streaming._files import (
    FileTotals,
    Part,
    accumulate_batches,
    accumulate_parquet,
    in_this_process,
)
from calibrant.streaming._monitor import Monitor
from calibrant.streaming._monitor_report import MonitoredValue, MonitorReport
from calibrant.streaming._parquet import STREAM_OPTIONS, ParquetShards, parquet_files

__all__ = [
    "FILE_EXECUTORS",
    "STREAM_OPTIONS",
    "Accumulator",
    "FileExecutor",
    "FileTotals",
    "LocalProcesses",
    "Monitor",
    "MonitorReport",
    "MonitoredValue",
    "ParquetShards",
    "Part",
    "RayTasks",
    "accumulate_batches",
    "accumulate_files",
    "accumulate_parquet",
    "in_this_process",
    "parquet_files",
]
