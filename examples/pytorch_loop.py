"""Your own PyTorch loop: another loss, then post-hoc calibration and a comparison.

Run it with ``python examples/pytorch_loop.py``; it takes a few seconds. Only three lines use Calibrant: the objective, the
predictions and the calibrator. The rest is an ordinary training loop.
"""

import torch
from torch import nn

import calibrant
from calibrant.calibrators import TemperatureScaling
from calibrant.data import load
from calibrant.losses import Objective

EPOCHS, BATCH = 20, 64


def main() -> None:
    torch.manual_seed(0)
    data = load("signals")  # 800 training and 2,000 test signals, six classes
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    held_out = slice(600, None)  # for the calibrator: never calibrate on training samples

    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 64), nn.ReLU(), nn.Linear(64, 6))
    objective = Objective("cross_entropy", {"name": "soft_binned_ece"}, weight=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(600).split(BATCH):
            optimizer.zero_grad()
            objective(model(x[batch]), y[batch]).backward()
            optimizer.step()

    with torch.no_grad():
        validation = calibrant.Predictions(logits=model(x[held_out]), labels=y[held_out])
        test = calibrant.Predictions(
            logits=model(torch.from_numpy(data.x_test)), labels=data.y_test
        )
    calibrator = TemperatureScaling().fit(validation)
    print(f"temperature {calibrator.temperature_:.2f}")
    print(
        calibrant.compare(
            {"uncalibrated": test, "calibrated": calibrator.transform(test)}, replicates=100
        )
    )


if __name__ == "__main__":
    main()
