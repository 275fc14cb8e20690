"""Metrics of data larger than memory: accumulators that merge, and Parquet read batch by batch."""

from calibrant.streaming._accumulator import Accumulator, accumulate_parquet
from calibrant.streaming._parquet import ParquetShards, parquet_files

__all__ = ["Accumulator", "ParquetShards", "accumulate_parquet", "parquet_files"]
