"""Statistical inference: intervals, calibration tests, paired comparison.

Averages and rankings get the percentile bootstrap over samples; accuracy gets the Wilson interval;
calibration errors, whose estimates are biased, get the grid bootstrap. Their interval is for the
error of the population in the same bins or kernel, not for the biased estimate, so the estimate can
lie outside: an ECE of 1 % with the interval 0 … 0.8 % means that noise alone would show more.

All intervals and tests assume independent samples.

All of this concerns the samples of one model. Statistics over training runs (mean over seeds,
t-test, effect size, within-subject errors) are in ``calibrant.results``.
"""

from typing import TYPE_CHECKING

from calibrant._core.lazy import first_used
from calibrant.inference._clusters import INDEPENDENT, assumed_of, assumption
from calibrant.inference._intervals import Interval, intervals, values_of
from calibrant.inference._resampling import Resampling

if TYPE_CHECKING:
    from calibrant.inference._label_averages import macro_intervals, mean_defined, micro_intervals
    from calibrant.inference._label_shift import LabelShift, label_shift
    from calibrant.inference._paired import (
        Difference,
        differences_of,
        holm,
        paired_differences,
        paired_tests,
    )
    from calibrant.inference._streams import stream_bounds
    from calibrant.inference._tests import (
        CalibrationTest,
        calibrated_draws,
        consistency_band,
        ece_test,
        skce_test,
        spiegelhalter_test,
    )
else:
    __getattr__ = first_used(
        __name__,
        {
            "_label_averages": "macro_intervals mean_defined micro_intervals",
            "_label_shift": "LabelShift label_shift",
            "_paired": "Difference differences_of holm paired_differences paired_tests",
            "_streams": "stream_bounds",
            "_tests": "CalibrationTest calibrated_draws consistency_band ece_test skce_test "
            "spiegelhalter_test",
        },
    )

__all__ = [
    "INDEPENDENT",
    "CalibrationTest",
    "Difference",
    "Interval",
    "LabelShift",
    "Resampling",
    "assumed_of",
    "assumption",
    "calibrated_draws",
    "consistency_band",
    "differences_of",
    "ece_test",
    "holm",
    "intervals",
    "label_shift",
    "macro_intervals",
    "mean_defined",
    "micro_intervals",
    "paired_differences",
    "paired_tests",
    "skce_test",
    "spiegelhalter_test",
    "stream_bounds",
    "values_of",
]
