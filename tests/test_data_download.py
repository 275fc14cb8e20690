"""Downloads against a server on this machine: checksums, cut connections, resuming, mirrors."""

from __future__ import annotations

import hashlib
import io
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from calibrant import InputError
from calibrant.data import DATASETS, download, load
from calibrant.data import _registry as table
from calibrant.data._download import Remote, fetch
from tests.test_data_formats import cifar_files, write_idx, write_tar

pytest.importorskip("pooch")


class Handler(BaseHTTPRequestHandler):
    """Serves bytes by path; can cut connections and ignore ranges."""

    files: ClassVar[dict[str, bytes]] = {}
    cut_after: ClassVar[int | None] = None
    cuts: ClassVar[int] = 0
    ranges: ClassVar[bool] = True
    requests: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        cls = type(self)
        wanted = self.headers.get("Range")
        cls.requests.append((self.path, wanted))
        if self.path not in cls.files:
            self.send_error(404)
            return
        data, start = cls.files[self.path], 0
        if wanted and cls.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        body = data[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cls.cut_after is not None and cls.cuts > 0 and len(body) > cls.cut_after:
            cls.cuts -= 1
            body = body[: cls.cut_after]
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    handler = type("OneHandler", (Handler,), {"files": {}, "requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/", handler
        running.shutdown()
        thread.join()


DATA = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA).hexdigest()


@pytest.mark.parametrize("checksum", [f"sha256:{SHA}", f"md5:{MD5}"])
def test_a_file_is_fetched_once(
    server: tuple[str, type[Handler]], tmp_path: Path, checksum: str
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    remote = Remote(f"{url}a.bin", checksum, inside="set")
    path = fetch(remote, tmp_path)
    assert path == tmp_path / "set" / "a.bin"
    assert path.read_bytes() == DATA
    assert fetch(remote, tmp_path) == path
    assert len(handler.requests) == 1
    assert [file.name for file in path.parent.iterdir()] == ["a.bin"]


def test_a_wrong_checksum_leaves_nothing(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    with pytest.raises(InputError, match=r"checksum sha256:00.* has a different one"):
        fetch(Remote(f"{url}a.bin", f"sha256:{'00' * 32}"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_cut_connections_are_resumed(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    handler.cut_after, handler.cuts = 100_000, 2
    path = fetch(Remote(f"{url}a.bin", f"sha256:{SHA}"), tmp_path)
    assert path.read_bytes() == DATA
    assert [wanted for _, wanted in handler.requests] == [None, "bytes=100000-", "bytes=200000-"]


def test_what_was_fetched_is_kept_for_the_next_run(
    server: tuple[str, type[Handler]], tmp_path: Path
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    remote = Remote(f"{url}a.bin", f"sha256:{SHA}")
    handler.cut_after, handler.cuts = 20_000, 5
    with pytest.raises(InputError, match=r"100,000 bytes are kept; run the same command to resume"):
        fetch(remote, tmp_path)
    handler.requests.clear()
    assert fetch(remote, tmp_path).read_bytes() == DATA
    assert handler.requests == [("/a.bin", "bytes=100000-")]


def test_a_server_without_ranges_starts_over(
    server: tuple[str, type[Handler]], tmp_path: Path
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    handler.cut_after, handler.cuts, handler.ranges = 100_000, 1, False
    assert fetch(Remote(f"{url}a.bin", f"md5:{MD5}"), tmp_path).read_bytes() == DATA


def test_a_part_that_is_whole_or_of_another_file(
    server: tuple[str, type[Handler]], tmp_path: Path
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    remote = Remote(f"{url}a.bin", f"sha256:{SHA}")
    (tmp_path / "a.bin.part").write_bytes(DATA)
    assert fetch(remote, tmp_path).read_bytes() == DATA
    (tmp_path / "a.bin").unlink()
    (tmp_path / "a.bin.part").write_bytes(bytes(1000))
    with pytest.raises(InputError, match="has a different one"):
        fetch(remote, tmp_path)
    assert fetch(remote, tmp_path).read_bytes() == DATA  # the wrong part was thrown away


def test_no_file_and_no_server(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    url, _ = server
    with pytest.raises(InputError, match="404"):
        fetch(Remote(f"{url}none.bin", f"md5:{MD5}"), tmp_path)
    with pytest.raises(InputError, match="could not be fetched"):
        fetch(Remote("http://127.0.0.1:9/a.bin", f"md5:{MD5}"), tmp_path)


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("file:///etc/passwd", "http or https"),
        ("ftp://127.0.0.1/a", "http or https"),
        ("http://127.0.0.1/", "address of a file"),
        ("http://127.0.0.1/a", "https if no checksum"),
    ],
)
def test_addresses_that_are_refused(url: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=match):
        fetch(Remote(url), tmp_path)


def test_a_full_disk_is_noticed_first(
    server: tuple[str, type[Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA
    monkeypatch.setattr("calibrant.data._download.SPARE_DISK", 1 << 60)
    with pytest.raises(InputError, match="must have room for 300,000 bytes"):
        fetch(Remote(f"{url}a.bin", f"md5:{MD5}"), tmp_path)


def test_download_by_name_and_load(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    url, handler = server
    write_tar(tmp_path / "made.tar.gz", cifar_files("cifar10")[0])
    data = (tmp_path / "made.tar.gz").read_bytes()
    handler.files["/mirror/c.tgz"] = handler.files["/cifar-10-binary.tar.gz"] = data
    target = tmp_path / "data"
    target.mkdir()
    with pytest.raises(InputError, match="md5:c32a"):
        download("cifar10", target, url=url)
    sha = hashlib.sha256(data).hexdigest()
    path = download("cifar10", target, url=f"{url}mirror/c.tgz", sha256=sha)
    assert path == target / "cifar-10-binary.tar.gz"
    assert len(load("cifar10", folder=target).x_train) == 15


def test_download_several_files(
    server: tuple[str, type[Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    write_idx(tmp_path / "made", ".gz")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    handler.files.update({f"/m/{name}": data for name, data in files.items()})
    sums = {name: f"md5:{hashlib.md5(data).hexdigest()}" for name, data in files.items()}
    old = DATASETS["mnist"]
    remotes = tuple(Remote(r.url, sums[r.name], r.inside) for r in old.remotes)
    changed = type(old)(old.name, old.kind, old.description, old.files, old.load, remotes)
    monkeypatch.setitem(table.DATASETS, "mnist", changed)
    assert download("mnist", tmp_path, url=f"{url}m/") == tmp_path / "mnist"
    assert len(load("mnist", folder=tmp_path).y_train) == 5
    with pytest.raises(InputError, match="sha256 must be None"):
        download("mnist", tmp_path, sha256="00")


def test_download_and_unpack(server: tuple[str, type[Handler]], tmp_path: Path) -> None:
    url, handler = server
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for part in ("train", "dev", "test"):
            archive.writestr(f"trees/{part}.txt", "(3 (2 so) (2 so))\n")
    data = stream.getvalue()
    handler.files["/t.zip"] = data
    sha = hashlib.sha256(data).hexdigest().upper()
    assert download("sst", tmp_path, url=f"{url}t.zip", sha256=sha) == tmp_path / "trees"
    assert [file.name for file in tmp_path.iterdir()] == ["trees"]
    assert load("sst", folder=tmp_path).y_train.tolist() == [3]
    download("sst2", tmp_path, url=f"{url}t.zip", sha256=sha)
    assert len(handler.requests) == 1  # the folder is there already


@pytest.mark.parametrize("name", ["digits", "imagenet", "digits-generated", "nothing"])
def test_names_without_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name must be"):
        download(name, tmp_path)


def test_pooch_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[data\]'"):
        download("cifar10", tmp_path)


def test_the_progress_bar_is_for_terminals(
    server: tuple[str, type[Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    handler.files["/a.bin"] = DATA

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        fetch(Remote(f"{url}a.bin", f"md5:{MD5}", inside=str(shown)), tmp_path)
        assert ("Fetching a.bin" in stream.getvalue()) == shown
