"""Studies and streams on a real Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from calibrant import InputError
from calibrant.streaming import RayTasks, accumulate_files, in_this_process, parquet_files
from calibrant.study import Local, Ray, run_study
from tests.command import call
from tests.processes import begin, begin_talkative, stop, wait_for_files
from tests.test_stream_files import SIZES, states, write_shards
from tests.test_stream_remote import many_files
from tests.test_study import tiny, values
from tests.test_study_ray import LOCAL_HOST, head_node, node

# Of Ray's own.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of two nodes of one core each, stopped at the end whatever happens."""
    folder = tmp_path_factory.mktemp("r")
    # Without a token, also where the user has one, which Ray would use by itself.
    env = {"RAY_AUTH_MODE": "disabled", "HOME": str(folder)}
    with head_node(folder, env) as address, node([f"--address={address}"], env):
        yield address, folder


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
    over = threading.Event()

    def kill() -> None:
        while not over.is_set():
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
    over.set()
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


def tasks(address: str | None) -> RayTasks:
    return RayTasks(address, options=(("_node_ip_address", LOCAL_HOST),))


def test_two_nodes_give_the_same_bits(
    cluster: tuple[str, Path],
    tmp_path: Path,
) -> None:
    """With groups, clusters, two levels of the tree, a bad file and a killed worker."""
    address, folder = cluster
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    for k in range(5):
        (tmp_path / str(k)).mkdir()
        write_shards(
            tmp_path / str(k),
            groups={"site": np.where(rng.random(n) < 0.5, "a", "b")},
            clusters=rng.integers(0, 200, n),
        )
    files = parquet_files([str(tmp_path / "*" / "*.parquet")])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    killed = threading.Thread(target=kill_one_worker, args=(folder,), daemon=True)
    killed.start()
    bad = str(tmp_path / "bad.parquet")
    found = accumulate_files([*files, bad], executor=tasks(address), by="site", skip_bad=True)
    assert states(found) == states(in_this_process(files, by="site"))
    assert list(found.bad) == [bad]
    assert found.num_files == 21
    with pytest.raises(InputError, match=r"bad\.parquet"):
        accumulate_files([*files, bad], executor=tasks(address))


def kill_one_worker(folder: Path) -> None:
    """Kill the first process that works on a task of this cluster."""
    for _ in range(3000):
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            except OSError:
                continue
            if b"_read_task" in line and _in_cluster(entry, folder):
                os.kill(int(entry.name), signal.SIGKILL)
                return
        time.sleep(0.01)


def test_the_command_on_a_cluster(cluster: tuple[str, Path], tmp_path: Path) -> None:
    """The same output as alone; Ctrl-C ends it within two seconds."""
    address, _ = cluster
    write_shards(tmp_path)
    line = ["measure", tmp_path / "*.parquet", "--stream", "--json", "--replicates", 50]
    quiet = {"RAY_AUTH_MODE": "disabled"}
    process = begin(*line, "--executor", "ray", "--address", address, **quiet)
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert json.loads(out) == json.loads(call(*line).stdout)
    folder = tmp_path / "many"
    folder.mkdir()
    many_files(folder, 3000, 20_000)
    line = ["measure", folder, "--stream", "--executor", "ray", "--address", address]
    process = begin_talkative(*line, **quiet)
    wait_for_files(process)
    seconds, _, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert "files measured. Run the same command to start again." in error
    assert not left


def test_ray_data_aggregate(cluster: tuple[str, Path], tmp_path: Path) -> None:
    """On blocks of any size."""
    import ray

    from calibrant.ray_data import CalibrationAggregate

    address, _ = cluster
    every = write_shards(tmp_path)
    ray.init(address, _node_ip_address=LOCAL_HOST, log_to_driver=False)
    try:
        blocks = ray.data.read_parquet(str(tmp_path)).repartition(7)
        found = blocks.aggregate(CalibrationAggregate(intervals=False))["calibration"]
    finally:
        ray.shutdown()
    files = in_this_process(parquet_files([str(tmp_path / "*.parquet")]))
    want = files.total.result()
    assert every.num_samples == files.total.num_samples
    for name, got in found.items():
        assert got["value"] == want[name], name
