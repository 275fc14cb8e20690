"""An aggregate for Ray Data: the metrics of a data set, or of its groups, in one pass.

Needs ``pip install 'calibrant[ray]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant._core.extras import import_extra
from calibrant._measure import panel_of_stream
from calibrant.inference import Resampling
from calibrant.streaming import Accumulator, accumulate_batches

if TYPE_CHECKING:
    from ray.data.aggregate import AggregateFnV2
else:
    AggregateFnV2 = import_extra("ray.data.aggregate", "calibrant.ray_data").AggregateFnV2


class CalibrationAggregate(AggregateFnV2):  # type: ignore[misc]
    """Accumulates the columns of predictions: ``label`` with ``logit_0 …`` or ``prob_0 …``.

    The result has a value, and with ``intervals`` a lower and an upper bound, for each metric, as
    ``Panel.to_dict()["metrics"]`` has them. States are merged exactly, so the result does not
    depend on the blocks.

    Parameters
    ----------
    bins
        Number of equal-width bins of the ECE family.
    intervals
        Whether to compute intervals at the end.
    by
        Column of the groups in ``groupby(by).aggregate(…)``, which is no column of predictions.
    name
        Name of the column of the result.
    options
        Options of ``calibrant.load`` that say what the columns mean, such as ``label_column``.
    """

    def __init__(
        self,
        *,
        bins: int = 15,
        intervals: bool = True,
        by: str | None = None,
        name: str = "calibration",
        **options: Any,
    ) -> None:
        self._bins, self._intervals, self._by, self._options = bins, intervals, by, options
        super().__init__(name, lambda: b"", on=None, ignore_nulls=False)

    def aggregate_block(self, block: Any) -> bytes:
        """The state of the rows of a block."""
        import pyarrow as pa

        table = block if isinstance(block, pa.Table) else pa.Table.from_pandas(block)
        if self._by is not None:
            table = table.drop_columns([self._by])
        if not table.num_rows:
            return b""
        return accumulate_batches([table], bins=self._bins, **self._options).state()

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        """Merge two states; that of no rows is empty."""
        if not (current_accumulator and new):
            return current_accumulator or new
        total = Accumulator.from_state(current_accumulator)
        return total.merge(Accumulator.from_state(new)).state()

    def finalize(self, accumulator: bytes) -> dict[str, Any] | None:
        """The metrics, by name."""
        if not accumulator:
            return None
        resampling = Resampling() if self._intervals else None
        panel = panel_of_stream(Accumulator.from_state(accumulator), resampling=resampling)
        metrics: dict[str, Any] = panel.to_dict()["metrics"]
        return metrics
