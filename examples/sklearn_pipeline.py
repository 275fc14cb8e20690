"""A scikit-learn pipeline with calibrated probabilities: wrap the classifier, keep everything else.

Run it with ``python examples/sklearn_pipeline.py`` (needs ``pip install 'calibrant[sklearn]'``).
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import calibrant
from calibrant.sklearn import CalibratedClassifier


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=0)
    forest = RandomForestClassifier(n_estimators=50, random_state=0)

    models = {
        "forest": make_pipeline(StandardScaler(), forest),
        "calibrated forest": make_pipeline(
            StandardScaler(), CalibratedClassifier(forest, method="beta", cv=3)
        ),
    }
    predictions = {}
    for name, model in models.items():
        probs = model.fit(x_train, y_train).predict_proba(x_test)
        # A forest can predict 0 for the true class; the NLL is then infinite.
        predictions[name] = calibrant.Predictions(probs=probs, labels=np.asarray(y_test))
    print(calibrant.compare(predictions, metrics=["accuracy", "brier", "ece"], replicates=100))


if __name__ == "__main__":
    main()
