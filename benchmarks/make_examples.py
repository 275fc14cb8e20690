"""Make the embedded example predictions: one small network, two losses, the same noisy digits."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from calibrant import Predictions

TRAIN, TEST, NOISE, EPOCHS = 297, 1500, 4.0, 300
FOLDER = Path(__file__).parents[1] / "src" / "calibrant" / "examples"


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    x = torch.tensor((images[order] + rng.normal(0, NOISE, images.shape)) / 16, dtype=torch.float32)
    y = torch.tensor(labels[order])
    for name, smoothing in (("cross_entropy", 0.0), ("label_smoothing", 0.3)):
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
        for _ in range(EPOCHS):
            optimiser.zero_grad()
            logits = network(x[:TRAIN])
            torch.nn.functional.cross_entropy(
                logits, y[:TRAIN], label_smoothing=smoothing
            ).backward()
            optimiser.step()
        with torch.no_grad():
            logits = network(x[TRAIN : TRAIN + TEST])
        meta = {"data": "scikit-learn digits, noisy", "loss": name, "smoothing": smoothing}
        predictions = Predictions(logits=logits, labels=y[TRAIN : TRAIN + TEST], meta=meta)
        predictions.save(FOLDER / f"{name}.npz")
        print(name, predictions)


if __name__ == "__main__":
    main()
