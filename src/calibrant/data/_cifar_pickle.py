"""The pickled batches of CIFAR, read as data: nothing is imported, called or unpickled.

A pickle is a program for a small stack machine. The machine here knows the instructions that build
numbers, strings, lists, tuples and dictionaries, and how the authors' files encode a NumPy array.
Any other instruction or name is rejected.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import InputError
from calibrant._core.files import clear_errors, damaged

# What the files may name. Nothing of it is looked up: arrays are put together from their parts.
_RECONSTRUCT = frozenset(
    {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
)
_ARRAY, _DTYPE, _ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
_BYTES = frozenset({"__builtin__ bytes", "builtins bytes"})
_NAMES = _RECONSTRUCT | _BYTES | {_ARRAY, _DTYPE, _ENCODE}
_STATE_PARTS = 5  # version, shape, type, Fortran order, bytes

_PUSH = frozenset(
    (
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINFLOAT",
    )
)
_PUSH_TEXT = frozenset(("STRING", "BINSTRING", "SHORT_BINSTRING"))
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """A name the file mentions."""

    text: str


@dataclass
class _Built:
    """An array or a type under construction, with the state that the file gives it."""

    what: str
    arguments: tuple[Any, ...]
    state: Any = None


def read_batch(data: bytes, where: str) -> dict[str, Any]:
    """The dictionary of one batch: arrays as NumPy arrays, text as str.

    Examples
    --------
    >>> import pickle
    >>> read_batch(pickle.dumps({b"labels": [6, 9]}, protocol=2), "test_batch")
    {'labels': [6, 9]}
    """
    with clear_errors(where, "a CIFAR batch"):
        machine = _Machine(where)
        for opcode, argument, _ in pickletools.genops(data):
            machine.step(opcode.name, argument)
        result = machine.stack.pop()
        if not isinstance(result, dict) or machine.stack:
            raise damaged(where, "does not hold one dictionary")
        return {_text(key): _plain(value, where) for key, value in result.items()}


class _Machine:
    """The stack, the memo, and what each instruction does to them."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSH:
            self.stack.append(argument)
        elif name in _PUSH_TEXT:
            self.stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name not in ("PROTO", "FRAME", "STOP"):
            action = getattr(self, f"_do_{name.lower()}", None)
            if action is None:
                raise _refused(self.where, f"the instruction {name}")
            action(argument)

    def _do_mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def _do_put(self, index: int) -> None:
        self.memo[int(index)] = self.stack[-1]

    _do_binput = _do_long_binput = _do_put

    def _do_memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _do_get(self, index: int) -> None:
        self.stack.append(self.memo[int(index)])

    _do_binget = _do_long_binget = _do_get

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _take(self, count: int) -> tuple[Any, ...]:
        return tuple([self.stack.pop() for _ in range(count)][::-1])

    def _do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _do_list(self, _: Any) -> None:
        self.stack.append(self._since_mark())

    def _do_tuple1(self, _: Any) -> None:
        self.stack.append(self._take(1))

    def _do_tuple2(self, _: Any) -> None:
        self.stack.append(self._take(2))

    def _do_tuple3(self, _: Any) -> None:
        self.stack.append(self._take(3))

    def _do_append(self, _: Any) -> None:
        (item,) = self._take(1)
        self._extend([item])

    def _do_appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise damaged(self.where, "adds items to something that is no list")
        self.stack[-1].extend(items)

    def _do_dict(self, _: Any) -> None:
        items = self._since_mark()
        self.stack.append({})
        self._update(items)

    def _do_setitem(self, _: Any) -> None:
        self._update(list(self._take(2)))

    def _do_setitems(self, _: Any) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise damaged(self.where, "sets items of something that is no dictionary")
        keys = items[::2]
        # Only text: the hash of a deeply nested tuple would overflow the interpreter's own stack.
        if not all(isinstance(key, (bytes, str)) for key in keys):
            raise damaged(self.where, "has a key that is not a string")
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    def _do_global(self, name: str) -> None:
        if name not in _NAMES:
            raise _refused(self.where, f"the name {name.replace(' ', '.')!r}")
        self.stack.append(_Name(name))

    def _do_stack_global(self, _: Any) -> None:
        module, name = self._take(2)
        self._do_global(f"{module} {name}")

    def _do_reduce(self, _: Any) -> None:
        called, arguments = self._take(2)
        name = called.text if isinstance(called, _Name) else None
        if name == _ENCODE:
            text, _encoding = arguments
            self.stack.append(str(text).encode("latin-1"))
        elif name in _BYTES and arguments == ():
            self.stack.append(b"")
        elif name in _RECONSTRUCT or name == _DTYPE:
            self.stack.append(_Built(str(name), arguments))
        else:
            raise _refused(self.where, "a call")

    def _do_build(self, _: Any) -> None:
        (state,) = self._take(1)
        if not isinstance(self.stack[-1], _Built):
            raise _refused(self.where, "a state for something that is no array")
        self.stack[-1].state = state


def _plain(value: Any, where: str) -> Any:
    """A value with its array put together; containers no deeper than these files have them."""
    if isinstance(value, _Built):
        return _array(value, where)
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _array(built: _Built, where: str) -> NDArray[np.uint8]:
    state = built.state
    if built.what not in _RECONSTRUCT or not isinstance(state, tuple) or len(state) != _STATE_PARTS:
        raise damaged(where, "holds an array without its parts")
    _, shape, dtype, fortran, raw = state
    code = _text(dtype.arguments[0]) if isinstance(dtype, _Built) and dtype.arguments else None
    if not isinstance(code, str) or code != "u1" or not isinstance(raw, bytes):
        raise damaged(where, "holds an array of another type than bytes")
    whole = isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
    if not whole or math.prod(shape) != len(raw):
        raise damaged(where, f"declares an array {shape} but holds {len(raw):,} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


def _refused(where: str, what: str) -> InputError:
    return InputError(
        f"{where} must contain only numbers, strings and arrays; it uses {what}, which could run "
        "code and is rejected. Get the file from its authors."
    )
