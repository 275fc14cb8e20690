"""The Ray executor on a real cluster of two nodes, both on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from calibrant.study import Local, Ray, run_study
from tests.test_study import tiny, values

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own
LOCAL_HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCAL_HOST, 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of two nodes of one core each, stopped at the end whatever happens."""
    address = f"{LOCAL_HOST}:{free_port()}"
    folder = tmp_path_factory.mktemp("r")
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--num-cpus=1", "--block",
           f"--node-ip-address={LOCAL_HOST}", "--object-store-memory=100000000"]  # fmt: skip
    env = {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", "OMP_NUM_THREADS": "1"}
    head = [*ray, "--head", f"--port={address.split(':')[1]}", "--include-dashboard=false",
            f"--temp-dir={folder}"]  # fmt: skip
    nodes = [_start(head, env)]
    _wait_for(address)
    nodes.append(_start([*ray, f"--address={address}"], env))
    try:
        yield address, folder
    finally:
        for node in nodes:
            os.killpg(node.pid, signal.SIGTERM)
        for node in nodes:
            try:
                node.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)  # fmt: skip


def _wait_for(address: str) -> None:
    host, port = address.split(":")
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(address)


def _in_cluster(entry: Path, folder: Path) -> bool:
    """Whether the node that started a worker belongs to this cluster."""
    try:
        parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        return str(folder).encode() in (Path("/proc") / parent / "cmdline").read_bytes()
    except OSError:
        return False


def executor(address: str) -> Ray:
    return Ray(address=address, options=(("_node_ip_address", LOCAL_HOST),))


def test_cluster_equals_this_machine(cluster: tuple[str, Path], tmp_path: Path) -> None:
    """A worker is killed in the middle; the table is complete and the same."""
    address, folder = cluster
    killed: list[int] = []

    def kill() -> None:
        for _ in range(2000):
            for entry in Path("/proc").iterdir():
                try:
                    name = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if name.startswith(b"ray::_task") and _in_cluster(entry, folder):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed.append(int(entry.name))
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    now = run_study(tiny(), tmp_path / "ray", executor=executor(address))
    thread.join()
    assert killed
    assert now.count("done") == 6
    run_study(tiny(), tmp_path / "local", executor=Local(workers=2, threads=1))
    assert values(tmp_path / "ray") == values(tmp_path / "local")
    # More metrics later: from the kept logits, which travel to the workers and back.
    more = tiny(metrics=["accuracy", "nll", "ece", "brier"])
    assert run_study(more, tmp_path / "ray", executor=executor(address)).count("done") == 6


def test_a_run_that_fails_on_the_cluster(cluster: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = cluster
    study = tiny(models=["cnn1d", "resnet8"], seeds=1, objectives=["cross_entropy"])
    now = run_study(study, tmp_path, executor=executor(address))
    assert (now.count("done"), now.count("failed")) == (1, 1)
