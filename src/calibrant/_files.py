"""Reading and writing columns of predictions: npz, npy, Parquet, CSV, safetensors.

Files come from outside and are treated as hostile: nothing is unpickled, only regular files are
opened, and what they need is compared with the memory that is left before anything is allocated.
"""

from __future__ import annotations

import errno
import io
import json
import lzma
import math
import os
import re
import secrets
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant._checks import InputError, near_name, refuse
from calibrant._extras import import_extra
from calibrant._memory import check_size, in_bytes
from calibrant._stopping import removed_on_stop

if TYPE_CHECKING:
    import pyarrow as pa

ARRAY_NAMES = ("logits", "probs", "labels", "confidence", "correct")
META_KEY = "calibrant"
TEMPORARY = ".tmp"  # ending of files that are not finished
# Of folders that cannot be flushed: some network disks, and folders that may not be listed.
NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
STREAM_ADVICE = "Free some, or read it as Parquet in bounded memory: calibrant measure --stream."
CSV_PREFIX = "# calibrant "
# Values of a row group written piece by piece: the footer stays small, and so does what is held.
ROW_GROUP_ELEMENTS = 1 << 24
# Scores hardly repeat: a dictionary of them makes files half as large again and writing slow.
PARQUET_OPTIONS: dict[str, Any] = {"use_dictionary": False}
_NUMBERED = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,6})\Z")


@dataclass(frozen=True)
class Columns:
    """The arrays of one file, with the class names and metadata saved beside them."""

    arrays: dict[str, NDArray[Any]]
    classes: tuple[str, ...] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def header(self) -> str | None:
        """Class names and metadata as JSON, or None where there is neither."""
        if self.classes is None and not self.meta:
            return None
        return json.dumps({"classes": self.classes, "meta": self.meta})


def read(
    path: str | Path, labels: str | Path | None = None, *, need_labels: bool = True
) -> Columns:
    """Read any supported file; ``labels`` names the second file of a npy pair."""
    path = Path(path)
    reader: Callable[[Path], Columns] = _choose(path, READERS)
    check_regular(path)
    if labels is None and not need_labels and reader is _read_npy_pair:
        return _read_npy_alone(path)
    if labels is None:
        return reader(path)
    if path.suffix.lower() != ".npy":
        rule = "belongs to a .npy file"
        raise refuse("labels", rule, f"got {path.name}", "Leave it out: this file holds labels.")
    return _read_npy_pair(path, Path(labels))


def write(path: str | Path, columns: Columns) -> None:
    """Write a file by its ending."""
    writer = writer_for(path)
    with replacing(path) as temporary:
        writer(temporary, columns)


def writer_for(path: str | Path) -> Callable[[Path, Columns], None]:
    """What writes files of this ending, under whatever name."""
    writer: Callable[[Path, Columns], None] = _choose(Path(path), WRITERS)
    return writer


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name that becomes ``path`` at the end: a reader never sees half a file.

    The one way in which this package writes files. The contents reach the disk before the name
    does, so that this holds after a power cut too. A link is followed, and the permissions of a
    file that is replaced are kept; a device, a pipe or a folder is refused.
    """
    target = writable(path)
    name = f".{target.stem}-{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}"
    temporary = target.with_name(name)
    with removed_on_stop(temporary):
        try:
            yield temporary
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            _flush(temporary)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    try:
        _flush(target.parent)
    except OSError as error:
        if error.errno not in NO_FLUSH:
            raise


def _flush(path: Path) -> None:
    """Wait until a file, or the list of the files in a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: str | Path, content: bytes | memoryview) -> None:
    """Write a whole file, or leave what was there."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)


def writable(path: str | Path) -> Path:
    """Where a file of this name is written, after links; refuses what is not a regular file."""
    target = _resolved(Path(path))
    if target.exists() and not target.is_file():
        rule, advice = "must be a regular file or a new name", "Choose another name."
        raise refuse("path", rule, f"got {str(path)!r}, {_kind_of(target)}", advice)
    return target


def check_regular(path: Path) -> None:
    """Refuse to open what is not a regular file: a pipe would wait, a device may never end."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file. Check the path and the working directory.")
    if not path.is_file():
        rule, advice = "must be a regular file", "Copy its contents into a file first."
        raise refuse(str(path), rule, f"got {_kind_of(path)}", advice)


def read_text(path: Path, *, most: int) -> str:
    """A small text file: regular, UTF-8, and of at most so many bytes."""
    check_regular(path)
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        rule, advice = f"must be at most {in_bytes(most)} long", "Check that it is the right file."
        raise refuse(str(path), rule, "got more", advice)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        advice = "Save it as UTF-8."
        raise refuse(str(path), "must be UTF-8 text", f"got {error}", advice) from error


def read_json(path: Path, *, most: int = 1 << 20) -> Any:
    """What a small JSON file holds; whatever is wrong with it is one error."""
    try:
        return json.loads(read_text(path, most=most))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise refuse(str(path), "must be JSON", f"got {reason}", "Write it again.") from error


def same_file(a: Path, b: Path) -> bool:
    """Whether two paths lead to one file, through links too."""
    return _resolved(a) == _resolved(b) or (a.exists() and b.exists() and a.samefile(b))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # what Python 3.11 and 3.12 make of it
        raise OSError(errno.ELOOP, "The links lead in a circle", str(path)) from error


def _kind_of(path: Path) -> str:
    """What is there, in words."""
    kinds: dict[str, Callable[[], bool]] = {
        "a folder": path.is_dir, "a pipe": path.is_fifo, "a socket": path.is_socket,
        "a device": path.is_char_device,
    }  # fmt: skip
    return next((kind for kind, holds in kinds.items() if holds()), "something else")


def _choose(path: Path, table: dict[str, Any]) -> Any:
    try:
        return table[path.suffix.lower()]
    except KeyError:
        known = ", ".join(table)
        rule = f"must end in {known}"
        raise refuse("path", rule, f"got {path.name!r}", "Convert or rename the file.") from None


def npy_bytes(array: NDArray[Any]) -> bytes:
    """An array as a .npy file; ``numpy.save`` to a file does not say why a disk refuses it."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


# --- npz and npy ------------------------------------------------------------------------------


def _read_npz(path: Path) -> Columns:
    damage = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError)
    with clear_errors(path, *damage), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        if len(members) != len(infos):
            raise InputError(f"{path.name} holds an array twice; save each once.")
        unknown = [name for name in members if name not in (*ARRAY_NAMES, META_KEY)]
        if unknown:
            raise _unknown(path, "array", unknown[0])
        check_size(_npz_needs(archive, members, path.name), path.name, STREAM_ADVICE)
        arrays = {}
        for name, info in members.items():
            with archive.open(info) as stream:
                arrays[name] = read_npy(stream, info.file_size, f"{path.name}: {name}")
    header = arrays.pop(META_KEY, None)
    return _with_header(path, arrays, None if header is None else header.tobytes())


def _npz_needs(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], where: str) -> int:
    """Bytes that the arrays of an archive need in the end, by their headers."""
    needed = 0
    for name, info in members.items():
        with archive.open(info) as stream:
            shape, _, dtype = npy_header(stream, info.file_size, f"{where}: {name}")
        needed += held(math.prod(shape), dtype)
    return needed


def held(size: int, dtype: np.dtype[Any]) -> int:
    """Bytes of an array and of the 8-byte numbers that whole numbers are turned into."""
    return size * (dtype.itemsize + (0 if dtype.kind == "f" else 8))


def _read_npy_pair(path: Path, labels: Path | None = None) -> Columns:
    labels = labels or path.with_name("labels.npy")
    kind = _kind_by_name(path)
    if not labels.exists():
        raise FileNotFoundError(
            f"{labels}: no such file. Name the file of the labels: labels=… or --labels …."
        )
    check_regular(labels)
    return _read_npy_files({f"{kind}s": path, "labels": labels})


def _read_npy_alone(path: Path) -> Columns:
    """Scores, with the labels if they are there."""
    if path.with_name("labels.npy").is_file():
        return _read_npy_pair(path)
    return _read_npy_files({f"{_kind_by_name(path)}s": path})


def _kind_by_name(path: Path) -> str:
    kind = next((kind for kind in ("logit", "prob") if kind in path.stem.lower()), None)
    if kind is None:
        rule = "must say in its name whether it holds logits or probs"
        advice = "Rename it, for example logits.npy; values are never guessed from."
        raise refuse("path", rule, f"got {path.name!r}", advice)
    return kind


def _read_npy_files(files: dict[str, Path]) -> Columns:
    return Columns({name: read_array(file) for name, file in files.items()})


def read_array(path: Path) -> NDArray[Any]:
    """One array from a .npy file."""
    check_regular(path)
    with clear_errors(path), path.open("rb") as stream:
        return read_npy(stream, path.stat().st_size, path.name)


def npy_header(
    stream: IO[bytes], file_size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type of an array, if they fit the bytes there are."""
    version = np.lib.format.read_magic(stream)
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in headers:
        raise InputError(f"{where} has npy version {version}; save it again with numpy.save.")
    shape, fortran, dtype = headers[version](stream)
    if dtype.hasobject:
        raise InputError(
            f"{where} holds Python objects, which would need pickle; pickle can run code, so it "
            "is never read. Save plain numbers."
        )
    declared = math.prod(shape) * dtype.itemsize
    body = file_size - stream.tell()
    if declared != body:
        raise InputError(
            f"{where} declares {declared:,} bytes of data but holds {body:,}; the file is cut "
            "short or damaged. Save it again."
        )
    return shape, fortran, dtype


def read_npy(stream: IO[bytes], file_size: int, where: str) -> NDArray[Any]:
    """Read one npy array whose declared size fits the bytes that are there."""
    shape, fortran, dtype = npy_header(stream, file_size, where)
    declared = math.prod(shape) * dtype.itemsize
    check_size(declared, where)
    data = np.empty(math.prod(shape), dtype=dtype)
    raw, filled = data.view(np.uint8), 0
    while filled < declared:
        piece = stream.read(min(declared - filled, 1 << 24))
        if not piece:
            raise InputError(f"{where} ends early, after {filled:,} of {declared:,} bytes.")
        raw[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        filled += len(piece)
    return data.reshape(shape, order="F" if fortran else "C")


def _write_npz(path: Path, columns: Columns) -> None:
    arrays = dict(columns.arrays)
    header = columns.header()
    if header is not None:
        arrays[META_KEY] = np.frombuffer(header.encode(), dtype=np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


# --- Parquet and CSV --------------------------------------------------------------------------


def _read_parquet(path: Path) -> Columns:
    with clear_errors(path):
        table = read_parquet(path, check_columns)
        header = (table.schema.metadata or {}).get(META_KEY.encode())
        return _with_header(path, table_arrays(table, path.name), header)


def read_parquet(path: Path, check: Callable[[pa.Schema, str], None]) -> pa.Table:
    """A whole Parquet file whose columns ``check`` accepts, if it fits into memory.

    Strings are read as codes into a list of the different ones: written that way, a few bytes of
    a file can stand for gigabytes.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - Arrow costs 0.1 s to import

    check_regular(path)
    with pq.ParquetFile(path) as file:
        check(file.schema_arrow, path.name)
        check_size(parquet_needs(file.metadata), path.name, STREAM_ADVICE)
        texts = [field.name for field in file.schema_arrow if is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        return file.read()


def parquet_needs(metadata: Any) -> int:
    """Bytes that the values of a Parquet file take as they are read and as arrays.

    A run of equal values takes no room in a file, so the number of values counts, not their bytes.
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
    values = sum(c.num_values * widths.get(c.physical_type, 8) for c in chunks)
    return int(2 * values + sum(max(c.total_uncompressed_size, 0) for c in chunks))


def check_columns(schema: pa.Schema, where: str) -> None:
    """Refuse columns that are no numbers, lists of numbers, truth values or names."""
    import pyarrow as pa  # noqa: PLC0415

    given: Any
    for name, given in zip(schema.names, schema.types, strict=True):
        kind = given.value_type if is_list(given) else given
        label = name in ("label", "labels") and is_text(given)
        numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (label or numbers or pa.types.is_boolean(kind)):
            rule = "must hold numbers, or lists of numbers (a label also names)"
            got = f"got {given} in {name!r}"
            raise refuse(where, rule, got, "Convert that column.")


def is_list(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a list."""
    import pyarrow as pa  # noqa: PLC0415

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a string, or codes into a list of strings."""
    import pyarrow as pa  # noqa: PLC0415

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(_arrow_table(columns), path, **PARQUET_OPTIONS)


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[Columns], None]]:
    """Write one file piece by piece. Pieces are gathered into row groups of useful size."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    writer: Any = None
    pieces: list[Any] = []

    def flush() -> None:
        nonlocal writer
        if pieces:
            writer = writer or pq.ParquetWriter(path, pieces[0].schema, **PARQUET_OPTIONS)
            writer.write_table(pa.concat_tables(pieces))
            pieces.clear()

    def add(columns: Columns) -> None:
        pieces.append(_arrow_table(columns))
        if sum(piece.num_rows * piece.num_columns for piece in pieces) >= ROW_GROUP_ELEMENTS:
            flush()

    try:
        yield add
        flush()
    finally:
        if writer is not None:
            writer.close()


def parquet_header(path: Path, schema: Any) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names and metadata of a Parquet file."""
    header = (schema.metadata or {}).get(META_KEY.encode())
    columns = _with_header(path, {}, header)
    return columns.classes, columns.meta


def _read_csv(path: Path) -> Columns:
    from pyarrow import csv  # noqa: PLC0415

    with path.open("rb") as stream:
        first = stream.readline(1 << 24)
    header = first[len(CSV_PREFIX) :] if first.startswith(CSV_PREFIX.encode()) else None
    with clear_errors(path):
        check_size(_csv_needs(path), path.name, STREAM_ADVICE)
        options = csv.ReadOptions(skip_rows=0 if header is None else 1)
        table = csv.read_csv(path, read_options=options)
        return _with_header(path, table_arrays(table, path.name), header)


def _csv_needs(path: Path) -> int:
    """Bytes of the text, and twice 8 of each value in it: as it is read, and as an array."""
    values = 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 24):
            values += piece.count(b",") + piece.count(b"\n")
    return path.stat().st_size + 16 * values


def _write_csv(path: Path, columns: Columns) -> None:
    from pyarrow import csv  # noqa: PLC0415

    header = columns.header()
    with path.open("wb") as stream:
        if header is not None:
            stream.write(f"{CSV_PREFIX}{header}\n".encode())
        csv.write_csv(_arrow_table(columns), stream)


def _arrow_table(columns: Columns) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    fields: dict[str, Any] = {}
    for name, array in columns.arrays.items():
        if array.ndim == 1:
            fields[name.removesuffix("s") if name == "labels" else name] = array
        else:
            stem = name.removesuffix("s")
            fields |= {f"{stem}_{k}": np.ascontiguousarray(column)
                       for k, column in enumerate(array.T)}  # fmt: skip
    header = columns.header()
    return pa.table(fields, metadata=None if header is None else {META_KEY: header})


def table_arrays(table: pa.Table | pa.RecordBatch, where: str) -> dict[str, NDArray[Any]]:
    """Turn columns ``label, logit_0 …`` or list columns ``labels, logits`` into arrays.

    Numbered columns become a matrix stored column by column, so that no transposing copy is made.
    """
    if not table.num_rows:  # columns of a CSV file without rows have no type, either
        advice = "Check the filter or the path that produced it."
        raise refuse(where, "must hold at least one sample", "got no rows", advice)
    numbered: dict[str, dict[int, Any]] = {"logit": {}, "prob": {}}
    arrays: dict[str, NDArray[Any]] = {}
    _refuse_twins(table.schema.names, where)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        match = _NUMBERED.match(name)
        if match:
            numbered[match[1]][int(match[2])] = column
        elif name in (*ARRAY_NAMES, "label"):
            arrays["labels" if name == "label" else name] = _from_arrow(column, f"{where}: {name}")
        else:
            raise _unknown(where, "column", name)
    for stem, columns in numbered.items():
        if columns:
            missing = next(k for k in range(len(columns) + 1) if k not in columns)
            if missing != len(columns):
                raise InputError(
                    f"{where} has no column {stem}_{missing}, but has {stem}_{max(columns)}; "
                    "number the classes from 0 without gaps."
                )
            ordered = [_from_arrow(columns[k], f"{where}: {stem}_{k}") for k in range(len(columns))]
            arrays[f"{stem}s"] = np.stack(ordered).T
    return arrays


def _refuse_twins(names: list[str], where: str) -> None:
    """Refuse a quantity that is there twice: whichever were taken, the other might be meant."""
    stems = {"logit": "logits", "prob": "probs"}
    matches = [(name, _NUMBERED.match(name)) for name in names]
    plain = ["labels" if name == "label" else name for name, match in matches if not match]
    numbered = {stems[match[1]] for _, match in matches if match}
    twice = [name for name in names if names.count(name) > 1]
    twice += [name for name in plain if plain.count(name) > 1 or name in numbered]
    if twice:
        raise InputError(f"{where} holds {twice[0]} twice; keep one column of each name.")


def _from_arrow(column: Any, where: str) -> NDArray[Any]:
    """A column as an array; a list column as a matrix whose lists all have one length."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if column.null_count:
        raise InputError(f"{where} has {column.null_count:,} missing values; fill or drop them.")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if is_list(kind):
        lengths = np.asarray(pc.list_value_length(column))
        low, high = (
            lengths.min(initial=0) if not len(lengths) else lengths.min(),
            lengths.max(initial=0),
        )
        if low != high:
            raise InputError(f"{where} has lists of {low} to {high} entries; give each row K.")
        values = _from_arrow(column.flatten(), where)
        return values.reshape(len(column), high or 0)
    if is_text(kind):
        texts = column.dictionary if pa.types.is_dictionary(kind) else column
        longest = pc.max(pc.utf8_length(texts)).as_py() or 0
        check_size(4 * longest * len(column), where)  # NumPy gives each the room of the longest
        names = np.asarray(texts.to_pylist(), dtype=np.str_)
        return names[column.indices.to_numpy()] if pa.types.is_dictionary(kind) else names
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


# --- safetensors ------------------------------------------------------------------------------


def _read_safetensors(path: Path) -> Columns:
    safetensors = _import_safetensors()
    with (
        clear_errors(path, safetensors.SafetensorError),
        safetensors.safe_open(path, framework="numpy") as file,
    ):
        names = list(file.keys())
        unknown = [name for name in names if name not in ARRAY_NAMES]
        if unknown:
            raise _unknown(path, "array", unknown[0])
        parts = [file.get_slice(name) for name in names]
        whole = sum(math.prod(p.get_shape()) for p in parts if not p.get_dtype().startswith("F"))
        check_size(path.stat().st_size + 8 * whole, path.name, STREAM_ADVICE)
        arrays = {name: file.get_tensor(name) for name in names}
        if any(array.dtype.name == "bfloat16" for array in arrays.values()):
            # NumPy knows it once some package, such as onnx, was imported; that must not matter.
            raise TypeError("NumPy has no bfloat16")
        header = (file.metadata() or {}).get(META_KEY)
    return _with_header(path, arrays, None if header is None else header.encode())


def _write_safetensors(path: Path, columns: Columns) -> None:
    header = columns.header()
    arrays = {name: np.ascontiguousarray(array) for name, array in columns.arrays.items()}
    numpy = _import_safetensors("safetensors.numpy")
    numpy.save_file(arrays, path, metadata=None if header is None else {META_KEY: header})


def _import_safetensors(part: str = "safetensors") -> Any:
    return import_extra(part, "A .safetensors file")


# --- what the formats share -------------------------------------------------------------------

READERS: dict[str, Callable[[Path], Columns]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".safetensors": _read_safetensors,
    ".npy": _read_npy_pair,
}
WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".safetensors": _write_safetensors,
}


FILE_ERRORS: tuple[type[Exception], ...] = (
    ValueError, TypeError, AttributeError, EOFError, OSError, MemoryError, tokenize.TokenError,
)  # fmt: skip


@contextmanager
def clear_errors(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn the many errors of damaged files, and ``kinds``, into one sentence."""
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except FILE_ERRORS + kinds as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path.name} cannot be read as {path.suffix.lstrip('.')}: {reason}. The file is "
            "damaged or of another kind; save it again."
        ) from error


def _unknown(path: str | Path, what: str, name: str) -> InputError:
    known = ("label", "logit_0", "prob_0") if what == "column" else ()
    advice = near_name(name, (*ARRAY_NAMES, *known))
    rule = f"has an unknown {what}"
    return refuse(Path(path).name, rule, f"got {name!r}", advice)


def _with_header(path: Path, arrays: dict[str, NDArray[Any]], header: bytes | None) -> Columns:
    if header is None:
        return Columns(arrays)
    try:
        record = json.loads(header)
        classes, meta = record["classes"], record["meta"]
        names = None if classes is None else tuple(map(str, classes))
        return Columns(arrays, names, dict(meta))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path.name} has damaged metadata ({error}); save it again.") from error
