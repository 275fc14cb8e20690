"""Measuring Parquet files with one worker and on a Ray cluster of two nodes on this machine.

    python benchmarks/cluster.py [--rows 20000000] [--rounds 6]

Two nodes of one core each, started with ``ray start`` on 127.0.0.1, against one process with one
thread, both with their processes running. The state must be the same bit for bit. Fills the part of
docs/cluster.md that says how fast it is, and how long 10^10 rows would take on 100 cores: on paper,
not measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from calibrant import Predictions
from calibrant._core.ray_cluster import connected
from calibrant.streaming import (
    Accumulator,
    FileExecutor,
    LocalProcesses,
    RayTasks,
    accumulate_files,
    parquet_files,
)
from calibrant.streaming._executors import FAN_IN
from common import DOCS, fill, machine, table

CLASSES, FILES, DISTINCT = 10, 40, 4
HOST = "127.0.0.1"
WAITS = 60  # of two seconds or more
ROW_BYTES = 4 * CLASSES + 8
PAPER_ROWS, PAPER_CORES, PAPER_FILES = 10**10, 100, 10_000


def write(folder: Path, rows: int) -> None:
    """Files of equal size; some are links to the same file, which is read again all the same."""
    size = rows // FILES
    for k in range(DISTINCT):
        rng = np.random.default_rng(k)
        z = rng.normal(0, 2, (size, CLASSES)).astype(np.float32)
        labels = (z / 1.5 + rng.gumbel(size=z.shape).astype(np.float32)).argmax(axis=1)
        Predictions(logits=z, labels=labels).save(folder / f"{k:03}.parquet")
    for k in range(DISTINCT, FILES):
        os.link(folder / f"{k % DISTINCT:03}.parquet", folder / f"{k:03}.parquet")


@contextmanager
def node(*options: str) -> Iterator[None]:
    ray = str(Path(sys.executable).with_name("ray"))
    line = [ray, "start", "--num-cpus=1", "--block", f"--node-ip-address={HOST}", *options]
    line += ["--object-store-memory=100000000"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(line, start_new_session=True, **quiet)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def two_nodes() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        address = f"{HOST}:{probe.getsockname()[1]}"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with ExitStack() as nodes:
        port = address.partition(":")[2]
        nodes.enter_context(node("--head", f"--port={port}", "--include-dashboard=false"))
        wait_for(address, 1)
        nodes.enter_context(node(f"--address={address}"))
        wait_for(address, 2)
        yield address


NODES = """
import ray, sys
ray.init(sys.argv[1], _node_ip_address=sys.argv[2], log_to_driver=False, logging_level="ERROR")
sys.exit(sum(node["Alive"] for node in ray.nodes()))
"""


def wait_for(address: str, nodes: int) -> None:
    """Until so many nodes are alive."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for _ in range(WAITS):
        time.sleep(2)
        host, _, port = address.partition(":")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))):
                continue
        asked = [sys.executable, "-c", NODES, address, HOST]
        if subprocess.run(asked, check=False, **quiet).returncode == nodes:
            return
    raise SystemExit(f"a Ray cluster of {nodes} nodes did not start at {address}")


def timed(files: list[str], executor: FileExecutor) -> tuple[float, bytes]:
    start = time.perf_counter()
    found = accumulate_files(files, executor=executor)
    return time.perf_counter() - start, found.total.state()


def merge_seconds(state: bytes) -> float:
    """Seconds to read a state and merge it."""
    total = Accumulator.from_state(state)
    start = time.perf_counter()
    for _ in range(20):
        total.merge(Accumulator.from_state(state))
    return (time.perf_counter() - start) / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), a.rows)
        files = parquet_files([name])
        with two_nodes() as address, ExitStack() as session:
            options = {"_node_ip_address": HOST}
            cluster = RayTasks(address, options=tuple(options.items()))
            # Ray starts new workers for every connection: a measurement in a session of its own
            # waits for them, which is a row of the table, not a part of the rate.
            start = time.perf_counter()
            session.enter_context(connected(address, "The benchmark", options))
            timed(files[:2], cluster)
            starting = time.perf_counter() - start
            timed(files[:2], LocalProcesses(1, threads=1))
            best = {"one": np.inf, "two": np.inf}
            states = set()
            for _ in range(a.rounds):
                for key, executor in (("one", LocalProcesses(1, threads=1)), ("two", cluster)):
                    seconds, state = timed(files, executor)
                    best[key] = min(best[key], seconds)
                    states.add(state)
    text = report(a.rows, best | {"starting": starting}, state, same=len(states) == 1)
    print(text)
    fill(DOCS / "cluster.md", "rates", text)


def report(rows: int, best: dict[str, float], state: bytes, *, same: bool) -> str:
    """What was measured, and what follows for more rows and cores."""
    ratio, rate, merge = best["one"] / best["two"], rows / best["one"], merge_seconds(state)
    depth = int(np.ceil(np.log(PAPER_FILES) / np.log(FAN_IN)))
    reading = PAPER_ROWS / rate / PAPER_CORES
    merging = PAPER_FILES * merge / PAPER_CORES + depth * FAN_IN * merge
    measured = [
        ("rows, classes, files", f"{rows:,}, {CLASSES}, {FILES}", ""),
        ("same bits on two nodes as with one worker", "yes" if same else "no", "yes"),
        ("one worker", f"{best['one']:.1f} s", ""),
        ("two nodes of one core", f"{best['two']:.1f} s", ""),
        ("two nodes against one worker", f"{ratio:.2f} ×", "≥ 1.5 ×"),
        ("connecting to Ray, its workers, two files", f"{best['starting']:.1f} s", ""),
        ("rate of a core", f"{rate / 1e6:.2f} million rows per second", ""),
        ("state", f"{len(state) / 1e3:.0f} kB, merged in {1000 * merge:.1f} ms", ""),
    ]
    needed = rate * PAPER_CORES * ROW_BYTES / 1e9
    paper = (
        f"Extrapolated from these rates, not measured: 10^10 rows in {PAPER_FILES:,} files "
        f"on {PAPER_CORES} cores take {reading:,.0f} s of reading and {merging:.1f} s of merging "
        f"(a tree of {depth} levels of {FAN_IN}), if the storage delivers {needed:.1f} GB/s."
    )
    return f"{machine()}\n\n{table(measured)}\n\n{paper}"


if __name__ == "__main__":
    main()
