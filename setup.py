"""The compiled row kernels, an optional extension, and the README as the long description.

No compiler is needed to install. Everything else about the package is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import Extension, setup

# Nothing here may change NaN, infinities or the order of sums; no instruction set is assumed, as
# the extension chooses one when it is loaded.
FLAGS = ["-O3", "-std=gnu99", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno"]
FLAGS += ["-fno-trapping-math"]
FOLDER = "src/calibrant/_core"
PARTS = (
    "sweeps",
    "few",
    "streams",
    "tables",
    "tilts",
    "draws",
    "ranks",
    "simulated",
    "clusters",
    "slabs",
    "affine",
    "fits",
    "losses",
    "loss_rows",
    "curves",
    "objectives",
)


def long_description() -> str:
    """Return the README without pictures and links that only work inside the repository."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!https:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https:)[^)]*\)", r"\1", text)


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "calibrant._core._rows",
            sources=[f"{FOLDER}/_rows.c"],
            depends=[f"{FOLDER}/_rows_{part}.h" for part in PARTS],
            extra_compile_args=FLAGS,
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
