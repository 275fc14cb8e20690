"""Deploy a calibrated model: the calibrator as ONNX after any model that outputs logits, or folded into its last layer.

Run it with ``python examples/deploy_onnx.py`` (needs ``pip install 'calibrant[train,onnx]'``).
"""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

import calibrant
from calibrant.calibrators import VectorScaling, load_calibrator


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    x = torch.randn(2_000, 20)
    labels = (x[:, :5] + torch.randn(2_000, 5)).argmax(1)  # labels that the model should predict
    with torch.no_grad():
        logits = model(x)
    calibrator = VectorScaling().fit(calibrant.Predictions(logits=logits, labels=labels))

    with tempfile.TemporaryDirectory() as folder:
        calibrator.save(Path(folder) / "calibrator.json")  # data only: safe to load from anywhere
        calibrator = load_calibrator(Path(folder) / "calibrator.json")
        path = Path(folder) / "calibrator.onnx"
        calibrator.to_onnx(path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: logits.numpy()})

    expected = calibrator.transform(calibrant.Predictions(logits=logits, labels=labels)).probs
    print(f"ONNX and Python differ by at most {np.abs(found - expected).max():.1e}")

    # Or without an extra step: a new last layer that outputs calibrated logits.
    model[2] = calibrator.fold_into(model[2])
    with torch.no_grad():
        folded = torch.softmax(model(x), 1).numpy()
    print(f"folded model and Python differ by at most {np.abs(folded - expected).max():.1e}")


if __name__ == "__main__":
    main()
