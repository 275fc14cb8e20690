"""Draw the picture of the README: reliability of the embedded examples, with what chance allows."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from calibrant import metrics
from calibrant.examples import load_example
from calibrant.inference import consistency_band, intervals

PANELS = (("cross_entropy", "trained with cross-entropy"),
          ("label_smoothing", "trained with label smoothing"))  # fmt: skip
BINS = 10


def main() -> None:
    mpl.use("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
    for ax, (name, title) in zip(axes, PANELS, strict=True):
        p = load_example(name)
        table = metrics.reliability(p, bins=BINS)
        low, high = consistency_band(p, bins=BINS)
        found = intervals(p, ["ece"], options={"ece": {"bins": BINS}})["ece"]
        middle = (table.edges[:-1] + table.edges[1:]) / 2
        full = table.count > 0
        ax.plot([0, 1], [0, 1], color="0.4", lw=1, ls="--", label="perfect calibration")
        ax.bar(middle[full], (high - low)[full], bottom=low[full], width=1 / BINS, color="0.85",
               label="what a calibrated model would show")  # fmt: skip
        error = np.stack([table.accuracy - table.lower, table.upper - table.accuracy])[:, full]
        ax.errorbar(table.confidence[full], table.accuracy[full], yerr=error, fmt="o-",
                    color="#0b5394", ms=4, capsize=2, label="accuracy, 95 % interval")  # fmt: skip
        sense = "over" if np.nansum(table.count * table.gap) < 0 else "under"
        size = f"ECE {found.value:.1%} ({found.low:.1%} … {found.high:.1%})"
        ax.set_title(f"{title}: {sense}confident\n{size}", fontsize=10)
        ax.set(xlabel="confidence", xlim=(0, 1), ylim=(0, 1))
    axes[0].set_ylabel("accuracy")
    axes[0].legend(loc="upper left", fontsize=8, frameon=False)
    path = Path(__file__).parents[1] / "docs" / "reliability.png"
    figure.savefig(path, dpi=110)
    print(path)


if __name__ == "__main__":
    main()
