"""Losses on the compiled kernels: a few calls for the value, one for the gradient.

In a small batch PyTorch's time is a fixed cost for each operation. Here the rows of logits become
columns of a block, one number per sample; the loss is a curve of these columns and leaves its
slopes in the block; and a last call makes the gradient by the logits from the slopes. In a large
batch that saves passes over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._core.arrays import over_chunks
from calibrant._core.compiled import compiled_rows
from calibrant.losses._batch import MIN_DIMENSIONS, Batch

BLOCK_WIDTH = 24  # columns of a block
# Which of them a loss takes beside those of the label and the top class: added up, or RAMPS alone.
RIVALS, ENTROPIES, BRIERS, SPREADS, RAMPS = 1, 2, 4, 8, 16
PARALLEL_ELEMENTS = 100_000  # from here on threads pay
# Rows whose probabilities are added up together: the same whatever the number of threads.
ROWS_OF_SUM = 512
TYPES = (torch.float32, torch.float64)
PLAIN = (Tensor, torch.nn.Parameter)

Formula: TypeAlias = Callable[[], Tensor]


class CompiledLoss(NamedTuple):
    """A loss of the kernels with its options, which they call a, b and c.

    ``wanted`` are its columns, RAMPS with their ``margin``. ``given`` is one number per sample.
    A loss ``of_batch`` gives one value, the others one per sample.
    """

    name: str
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    wanted: int = 0
    margin: float = 0.0
    given: Tensor | None = None
    of_batch: bool = False


def of_columns(curve: CompiledLoss, reference: Formula, batch: Batch) -> Tensor:
    """A loss of the batch as a curve of its columns, where the compiled kernels serve.

    ``reference()`` is the same loss in PyTorch's operations. It serves on other devices, for
    soft targets and pixels, while PyTorch traces or transforms, for logits that are not finite or
    labels out of range, without the extension, and for second derivatives.
    """
    if serves(batch, curve.given):
        # Transforms of torch.func and forward mode refuse the node, the kernels other values.
        with suppress(RuntimeError, ValueError):
            value: Tensor = _OfColumns.apply(  # type: ignore[no-untyped-call]
                batch.logits, batch, curve, reference
            )
            return value
    return reference()


def of_classes(reference: Formula, batch: Batch) -> Tensor:
    """MDCA: its slopes are one per class, so it is no curve of columns. Otherwise the same."""
    if serves(batch):
        with suppress(RuntimeError, ValueError):
            value: Tensor = _OfClasses.apply(  # type: ignore[no-untyped-call]
                batch.logits, batch, reference
            )
            return value
    return reference()


def serves(batch: Batch, given: Tensor | None = None) -> bool:
    """Whether the kernels take a batch: hard labels and dense rows of plain tensors on the CPU."""
    logits, labels, soft, _ = batch
    return (
        not soft
        and logits.ndim == MIN_DIMENSIONS
        and logits.is_cpu
        and type(logits) in PLAIN
        and logits.dtype in TYPES
        and logits.is_contiguous()
        and labels.is_contiguous()
        and (given is None or (given.is_cpu and not given.requires_grad))
        and not is_traced()
        and compiled_rows() is not None
    )


def is_traced() -> bool:
    """Whether PyTorch makes a graph of what is called."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return tracing or torch.compiler.is_compiling()


class _Rows(NamedTuple):
    """Rows of logits with their labels and their block of columns, and which columns."""

    logits: NDArray[Any]
    labels: NDArray[np.int64]
    block: NDArray[np.float64]
    wanted: int
    margin: float


def _threaded(part: Callable[[slice], int], shape: tuple[int, ...], step: int = 0) -> int:
    """Call for slices of the rows, in as many threads as PyTorch uses; the largest answer."""
    size, classes = shape
    threads = torch.get_num_threads()

    def work(slices: Iterator[slice]) -> int:
        return max(part(some) for some in slices)

    step = step or -(-size // threads)
    return max(over_chunks(work, size, classes, threads=threads, light=0, step=step))


def _sliced(call: Callable[..., int], rows: _Rows, *more: NDArray[Any]) -> int:
    """The call for slices of rows and of what is given per row."""
    logits, labels, block, *options = rows

    def part(some: slice) -> int:
        rest = (one[some] if one.ndim else one for one in more)
        return call(logits[some], labels[some], block[:, some], *options, *rest)

    return _threaded(part, logits.shape)


class _OfColumns(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, batch: Batch, curve: CompiledLoss, reference: Formula
    ) -> Tensor:
        kernels: Any = compiled_rows()
        _, labels, _, valid = batch
        name, a, b, c, wanted, margin, given, of_batch = curve
        z, size = logits.detach().numpy(), len(logits)
        rows = _Rows(z, labels.numpy(), np.empty((BLOCK_WIDTH, size)), wanted, margin)
        value = np.empty(() if of_batch else (size,), z.dtype)
        filled = z.size >= PARALLEL_ELEMENTS
        bad = _sliced(kernels.loss_columns, rows) if filled else -1
        if bad < 0:
            marked = None if valid is None else valid.contiguous().numpy()
            more = None if given is None else given.to(logits.dtype).contiguous().numpy()
            bad = kernels.loss_value(*rows, name, a, b, c, more, marked, value, filled)
        if bad >= 0:
            raise ValueError
        ctx.save_for_backward(logits)  # it notices changes in place
        ctx.known = rows, reference
        return torch.from_numpy(value)

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        rows, reference = ctx.known
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            (result,) = torch.autograd.grad(reference(), logits, by_value, create_graph=True)
            return result, None, None, None
        kernels: Any = compiled_rows()
        by, out = by_value.numpy(), np.empty_like(rows.logits)
        if out.size >= PARALLEL_ELEMENTS:
            _sliced(kernels.loss_gradient, rows, by, out)
        else:
            kernels.loss_gradient(*rows, by, out)
        return torch.from_numpy(out), None, None, None


class _OfClasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: Batch, reference: Formula) -> Tensor:
        kernels: Any = compiled_rows()
        z = logits.detach().numpy()
        rows, value = np.empty((2, len(z))), np.empty((), z.dtype)
        gaps = _class_gaps(z, rows, batch)
        kernels.class_slopes(z.shape[1], gaps, value)
        ctx.save_for_backward(logits)  # it notices changes in place
        ctx.known = z, rows, gaps, reference
        return torch.from_numpy(value)

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        z, rows, slopes, reference = ctx.known
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            (result,) = torch.autograd.grad(reference(), logits, by_value, create_graph=True)
            return result, None, None
        call: Callable[..., int] = cast("Any", compiled_rows()).class_gap_gradient
        by, out = by_value.numpy(), np.empty_like(z)
        if z.size >= PARALLEL_ELEMENTS:
            _threaded(lambda some: call(z[some], rows[:, some], slopes, by, out[some]), z.shape)
        else:
            call(z, rows, slopes, by, out)
        return torch.from_numpy(out), None, None


def _class_gaps(
    logits: NDArray[Any], rows: NDArray[np.float64], batch: Batch
) -> NDArray[np.float64]:
    """For each class its probabilities minus its labels, added up; then how many samples count."""
    call: Callable[..., int] = cast("Any", compiled_rows()).class_gaps
    size, classes = logits.shape
    labels = batch.labels.numpy()
    valid = None if batch.valid is None else batch.valid.contiguous().numpy()
    if logits.size < PARALLEL_ELEMENTS:
        gaps = np.zeros(classes + 1)
        bad = call(logits, rows, gaps, labels, valid)
    else:
        sums = np.zeros((-(-size // ROWS_OF_SUM), classes + 1))

        def part(some: slice) -> int:
            counted = None if valid is None else valid[some]
            to = sums[some.start // ROWS_OF_SUM]
            return call(logits[some], rows[:, some], to, labels[some], counted)

        bad = _threaded(part, logits.shape, ROWS_OF_SUM)
        gaps = sums.sum(0)
    if bad >= 0:
        raise ValueError
    return gaps
