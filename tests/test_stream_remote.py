"""Parquet files on a real S3 server and in processes of their own, all on 127.0.0.1."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrant import InputError, Predictions
from calibrant.io import RemoteFile, remote_files
from calibrant.streaming import (
    LocalProcesses,
    accumulate_files,
    in_this_process,
    parquet_files,
)
from tests.command import call
from tests.conftest import draw
from tests.processes import (
    begin_talkative,
    stop,
    wait_for_files,
    wait_for_handlers,
)
from tests.test_stream_files import SIZES, files_in, in_memory, states, write_shards
from tests.test_study_ray import LOCAL_HOST

KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Predictions]]:
    """URL of a folder in S3, the options of its filesystem, and what the files in it hold."""
    moto = pytest.importorskip("moto.server")
    from pyarrow import fs

    folder = tmp_path_factory.mktemp("shards")
    every = write_shards(folder)
    server = moto.ThreadedMotoServer(ip_address=LOCAL_HOST, port=0, verbose=False)
    server.start()
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    try:
        host, port = server.get_host_and_port()
        query = f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        there, _ = fs.FileSystem.from_uri(f"s3://bucket{query}&allow_bucket_creation=true")
        there.create_dir("bucket")
        for file in sorted(folder.glob("*.parquet")):
            for name in (file.name, f"deeper/{file.name}"):
                with there.open_output_stream(f"bucket/preds/{name}") as out:
                    out.write(file.read_bytes())
        with there.open_output_stream("bucket/preds/notes 1%.txt") as out:
            out.write(b"no table")
        yield "s3://bucket/preds", query, every
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.stop()


def test_s3_gives_the_same_bits(bucket: tuple[str, str, Predictions]) -> None:
    url, query, every = bucket
    files = parquet_files([f"{url}/*.parquet{query}"])
    assert files == [f"{url}/part-{k}.parquet{query}" for k in range(len(SIZES))]
    found = in_this_process(files)
    assert states(found) == {"": in_memory(every)}
    assert states(accumulate_files(files, executor=LocalProcesses(1))) == states(found)


def test_s3_patterns(bucket: tuple[str, str, Predictions]) -> None:
    url, query, _ = bucket

    def names(pattern: str) -> list[str]:
        found = sorted(remote_files(f"{pattern}{query}"))
        return [file.removeprefix(f"{url}/").removesuffix(query) for file in found]

    parts = [f"part-{k}.parquet" for k in range(4)]
    assert names(url) == parts  # a folder: its Parquet files
    assert names(f"{url}/part-1.parquet") == parts[1:2]
    assert names(f"{url}/part-*") == parts
    assert names(f"{url}/**/*.parquet") == [*(f"deeper/{p}" for p in parts), *parts]
    assert names(f"{url}/*/part-3.parquet") == ["deeper/part-3.parquet"]
    assert names(f"{url}/*.txt") == ["notes%201%25.txt"]
    assert RemoteFile(f"{url}/notes%201%25.txt{query}").name == "notes 1%.txt"
    assert names(f"{url}/*.csv") == []


def test_the_command_reads_s3(bucket: tuple[str, str, Predictions]) -> None:
    url, query, _ = bucket
    line = ["measure", f"{url}/*.parquet{query}", "--stream", "--no-intervals", "--json"]
    found = call(*line)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["num_samples"] == sum(SIZES)
    missing = call("measure", f"{url}/no*.parquet{query}", "--stream")
    assert missing.returncode == 2
    assert "must match Parquet files" in missing.stderr
    bad = call("measure", f"{url}/notes%201%25.txt{query}", "--stream")
    assert bad.returncode == 2
    assert "notes 1%.txt cannot be read as parquet" in bad.stderr
    assert len(bad.stderr.splitlines()) == 1


def test_urls_that_lead_nowhere() -> None:
    for url in ("s3x://bucket/a.parquet", "https://example.org/a.parquet"):
        with pytest.raises(InputError, match=r"cannot be read|filesystem that PyArrow knows"):
            parquet_files([url])
    with pytest.raises(FileNotFoundError, match="no such file"):
        in_this_process(["file:///no/such/folder/a.parquet"])


def test_local_files_by_url(tmp_path: Path) -> None:
    write_shards(tmp_path)
    files = parquet_files([f"file://{tmp_path}/part-*.parquet"])
    assert states(in_this_process(files)) == states(in_this_process(files_in(tmp_path)))


# --- stopping ---


def many_files(folder: Path, count: int, rows: int) -> None:
    z, labels = draw(rows, 10)
    first = folder / "0.parquet"
    Predictions(logits=z, labels=labels).save(first)
    for k in range(1, count):
        os.link(first, folder / f"{k}.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "measuring"])
def test_ctrl_c_stops_at_once(tmp_path: Path, moment: str) -> None:
    many_files(tmp_path, 4000, 20_000)
    line = ("measure", tmp_path, "--stream", "--executor", "local", "--workers", 2)
    process = begin_talkative(*line)
    if moment == "measuring":
        wait_for_files(process)
    else:
        time.sleep(1)
        wait_for_handlers(process)
    assert process.poll() is None
    seconds, _, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert process.returncode == 128 + signal.SIGINT
    assert "Stopped" in error.splitlines()[-1]
    assert "Run the same command" in error.splitlines()[-1]
    assert not left
