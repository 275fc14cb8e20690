"""The Ray executor: addresses, locks, ports and tokens."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if find_spec("ray") is None:  # without loading it: that takes seconds
    pytest.skip("Ray is not installed", allow_module_level=True)

from calibrant import InputError
from calibrant._core import ray_cluster
from calibrant.results import Store
from calibrant.study import Ray, Run, run_study
from tests.processes import PATIENCE, alive, begin, below, command, slowness, stop, wait_for
from tests.test_stopping import LONG
from tests.test_study import tiny, toml

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own
LOCAL_HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCAL_HOST, 0))
        return probe.getsockname()[1]


@contextmanager
def head_node(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """Address of a head node that listens."""
    port = free_port()
    options = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    with node(options, env):
        _wait_for(f"{LOCAL_HOST}:{port}")
        yield f"{LOCAL_HOST}:{port}"


@contextmanager
def node(options: list[str], env: dict[str, str]) -> Iterator[None]:
    line = [ray_command(), "start", "--num-cpus=1", "--block", f"--node-ip-address={LOCAL_HOST}"]
    line += ["--object-store-memory=100000000", *options]
    quiet = {"RAY_DISABLE_IMPORT_WARNING": "1", "OMP_NUM_THREADS": "1"}
    process = _start(line, {**os.environ, **quiet, **env})
    try:
        yield
    finally:
        started = below(process.pid)
        os.killpg(process.pid, signal.SIGKILL)  # after SIGTERM a node takes another ten seconds
        process.wait()
        wait_for(lambda: not alive(started))


def ray_command() -> str:
    return str(Path(sys.executable).with_name("ray"))


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for(address: str) -> None:
    host, port = address.split(":")

    def heard() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    wait_for(heard)


@pytest.mark.parametrize("kind", ["nonsense", "nobody", "silent", "another"])
def test_a_wrong_address_is_one_sentence(kind: str, tmp_path: Path) -> None:
    """A malformed address, no server, a silent server, and a server that is not Ray."""
    with socket.create_server((LOCAL_HOST, 0)) as server:
        port = free_port() if kind == "nobody" else server.getsockname()[1]
        if kind == "another":
            threading.Thread(target=_answer, args=(server,), daemon=True).start()
        address = "nonsense" if kind == "nonsense" else f"{LOCAL_HOST}:{port}"
        slow, start = slowness(), time.monotonic()
        with pytest.raises(InputError, match=r"^address must be .*; got '?" + address) as caught:
            run_study(tiny(), tmp_path, executor=Ray(address=address))
        assert (time.monotonic() - start) / max(slow, slowness()) < 15
        assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.glob("failed/*"))


def _answer(server: socket.socket) -> None:
    with server.accept()[0] as there:
        there.recv(100)
        there.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_cluster_that_hears_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would look for it at the address that other machines see, for minutes."""
    with socket.create_server((LOCAL_HOST, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ray_cluster, "_own_address", lambda: LOCAL_HOST)
        assert not ray_cluster._is_here_alone(f"{LOCAL_HOST}:{port}")
        monkeypatch.setattr(ray_cluster, "_own_address", lambda: "127.0.0.9")
        assert ray_cluster._is_here_alone(f"{LOCAL_HOST}:{port}")
        assert ray_cluster._is_here_alone(f"localhost:{port}")
        assert not ray_cluster._is_here_alone(f"10.0.0.1:{port}")


def test_without_an_address_no_cluster_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would connect to one that ended without a trace of it, and wait for minutes."""
    import ray

    asked: list[str] = []

    def init(address: str, **_: Any) -> None:
        asked.append(address)
        raise RuntimeError("seen")

    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(ray_cluster.ClusterError, match="seen"),
        ray_cluster.connected(None, "The test", {}),
    ):
        pass
    assert asked == ["local"]


def test_a_wrong_address_on_the_command_line(tmp_path: Path) -> None:
    line = command(
        "study",
        "run",
        toml(tmp_path),
        "--out",
        tmp_path / "out",
        "--executor",
        "ray",
        "--address",
        f"{LOCAL_HOST}:{free_port()}",
    )
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith("calibrant: --address must be that of a running Ray cluster; got")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


class _FakeRay:
    """A cluster of four cores that finishes the runs in the order in which it got them."""

    exceptions = SimpleNamespace(
        RayError=KeyError, WorkerCrashedError=OSError, NodeDiedError=OSError
    )

    def __init__(self, folder: Path) -> None:
        self.folder, self.most = folder, 0
        self.jobs: dict[str, Run] = {}

    def remote(self, **_: Any) -> Any:
        def decorate(_task: Any) -> Any:
            return SimpleNamespace(remote=self._begin)

        return decorate

    def _begin(self, run: Run, *_: Any) -> str:
        open_now = [path for path in Path("/proc/self/fd").iterdir() if _leads_to_lock(path)]
        self.most = max(self.most, len(open_now))
        self.jobs[run.key] = run
        return run.key

    def put(self, value: Any) -> Any:
        return value

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}

    def wait(self, jobs: list[str], **_: Any) -> tuple[list[str], list[str]]:
        return jobs[:1], jobs[1:]

    def get(self, job: str) -> dict[str, dict[str, bytes]]:
        store, run = Store(self.folder), self.jobs[job]
        store.write(run.key, [], {"label": run.name, "seconds": 0.0})
        content = store.result_path(run.key).read_bytes()
        return {"runs": {}, "failed": {}, "results": {f"{run.key}.parquet": content}}


def _leads_to_lock(path: Path) -> bool:
    try:
        return "/locks/" in str(path.readlink())
    except OSError:
        return False


@contextmanager
def files_at_most(more: int) -> Iterator[None]:
    """Let this process open only so many more files."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    now = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + 1 + more, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_locks_are_held_only_while_a_run_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More runs than a process may have files open."""
    monkeypatch.setattr("calibrant._core.files._flush", lambda _: None)
    study, store = tiny(seeds=40), Store(tmp_path / "out")
    ray = _FakeRay(tmp_path / "node")
    with files_at_most(100):
        found = [outcome for _, outcome in Ray()._submit(ray, study.runs, study.evaluation, store)]
    assert found == ["done"] * 120
    assert all(store.facts(run.key) for run in study.runs)
    assert 4 <= ray.most <= 4 + 2


@pytest.mark.slow
def test_ray_on_this_machine_stops_at_once_and_hears_nobody_else(tmp_path: Path) -> None:
    """All ports are those of 127.0.0.1; stdout stays free; Ctrl-C leaves no process."""
    line = ("study", "run", toml(tmp_path, **LONG), "--out", tmp_path / "out", "--executor", "ray")
    process = begin(*line, HOME=str(tmp_path))  # where Ray keeps its token
    wait_for(lambda: list(tmp_path.glob("out/locks/*")) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    time.sleep(3)
    heard_on = set(_listening(below(process.pid)))
    seconds, said, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert {address[-8:] for address in heard_on} == {"0100007F"}  # also written as IPv6
    assert not left
    assert (process.returncode, said) == (130, "")
    assert error.endswith("Stopped: 0 of 6 runs finished. Run the same command to continue.\n")
    assert "Traceback" not in error
    assert not list(tmp_path.glob("out/failed/*"))


def _listening(pids: list[int]) -> list[str]:
    """Addresses, as the system writes them, on which some processes accept connections."""
    sockets = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(str(path.readlink()).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and rest[5] in sockets:
                found.append(local.partition(":")[0])
    return found


@pytest.mark.slow
def test_a_token_as_the_documentation_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the token of the cluster a study runs; with another one it ends with a sentence."""
    tmp_path = tmp_path_factory.mktemp("t")  # Ray wants a short name
    homes = [{"RAY_AUTH_MODE": "token", "HOME": str(tmp_path / name)} for name in ("a", "b")]
    line = [ray_command(), "get-auth-token", "--generate"]
    subprocess.run(line, env={**os.environ, **homes[0]}, check=True, capture_output=True)
    token = tmp_path / "a" / ".ray" / "auth_token"
    other_token = tmp_path / "b" / ".ray" / "auth_token"
    other_token.parent.mkdir(parents=True)
    other_token.write_text(token.read_text()[::-1])
    path = toml(tmp_path, seeds=1, objectives=["cross_entropy"])
    with head_node(tmp_path, homes[0]) as address:
        options = ("--executor", "ray", "--address", address)
        ours, other = (
            begin("study", "run", path, "--out", tmp_path / f"out{k}", *options, **env)
            for k, env in enumerate(homes)
        )
        said, _ = ours.communicate(timeout=PATIENCE)
        assert ours.returncode == 0
        assert said.startswith("1 done, 0 running, 0 failed, 0 missing")
        said, error = other.communicate(timeout=PATIENCE)
        assert (other.returncode, said) == (2, "")
        last = error.splitlines()[-1]
        assert last.startswith(f"calibrant: Ray ({address}) cannot be used: ")
        assert last.endswith("put its token into ~/.ray/auth_token.")
        assert not list(tmp_path.glob("out1/results/*"))
