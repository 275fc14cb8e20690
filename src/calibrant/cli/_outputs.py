"""The files that ``calibrate`` and ``shift`` write: checked first, then written all or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from calibrant._core.checks import refuse
from calibrant._core.extras import need_extra
from calibrant._core.files import check_output, replacing, same_file
from calibrant.calibrators import Calibrator, MultiLabelCalibrator

CALIBRATOR_ENDINGS = {"save": ".json", "onnx": ".onnx"}

SaveFile = Annotated[
    Path | None, typer.Option(help="File to save the calibrator to, for example c.json.")
]
OnnxFile = Annotated[
    Path | None, typer.Option(help="File to export the calibrator to, for example c.onnx.")
]


def named_outputs(
    out: str | Path | None, save: str | Path | None, onnx: str | Path | None
) -> dict[str, Path]:
    """The outputs that were asked for, by the name of their option."""
    paths = {"out": out, "save": save, "onnx": onnx}
    return {name: Path(path) for name, path in paths.items() if path is not None}


def check_outputs(outputs: Mapping[str, Path], inputs: Sequence[Path]) -> None:
    """Reject outputs that cannot be written, or that are inputs, before any work."""
    seen = list(inputs)
    for name, path in outputs.items():
        ending = CALIBRATOR_ENDINGS.get(name)
        if ending and path.suffix.lower() != ending:
            raise refuse(f"--{name}", f"must end in {ending}", f"got {path.name!r}", "Rename it.")
        check_output(f"--{name}", path)
        if name == "onnx":
            need_extra("onnx", "--onnx")
        if any(same_file(path, other) for other in seen):
            rule, advice = "must not be an input or another output", "Choose another name."
            raise refuse(f"--{name}", rule, f"got {str(path)!r}", advice)
        seen.append(path)


@contextmanager
def written_together(outputs: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """Where to write each output; all are renamed into place at the end, or none."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(replacing(path)) for name, path in outputs.items()}


def write_calibrator(
    calibrator: Calibrator | MultiLabelCalibrator, places: Mapping[str, Path]
) -> None:
    """Write the calibrator as JSON and as an ONNX model, where these were asked for."""
    if "save" in places:
        calibrator.save(places["save"])
    if "onnx" in places:
        calibrator.to_onnx(places["onnx"])
