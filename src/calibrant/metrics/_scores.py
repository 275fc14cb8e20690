"""Averages of per-sample quantities: accuracy, proper scores, confidence, entropy."""

from __future__ import annotations

from calibrant.metrics._sample import Measurable, Ranked, Sample, rank


def accuracy(p: Measurable | Ranked) -> float:
    r"""Share of samples whose predicted class is the label.

    Range 0 to 1, higher is better. :math:`\frac1N \sum_i [\hat y_i = y_i]`, where the prediction is
    the class of largest score, the first of equals.

    >>> from calibrant import Predictions, metrics
    >>> metrics.accuracy(Predictions(logits=[[1.0, 0.0], [1.0, 0.0]], labels=[0, 1]))
    0.5
    """
    return rank(p).accuracy


def nll(p: Measurable) -> float:
    r"""Negative log-likelihood of the labels, in nats.

    Range 0 to infinity, lower is better. :math:`-\frac1N \sum_i \log p_{i,y_i}`. A strictly proper
    score: only the true probabilities minimise it. Infinite when a label has probability 0.

    References
    ----------
    Gneiting and Raftery (2007), doi:10.1198/016214506000001437.

    >>> from calibrant import Predictions, metrics
    >>> round(metrics.nll(Predictions(probs=[[0.5, 0.5], [0.2, 0.8]], labels=[0, 1])), 4)
    0.4581
    """
    return 0.0 - Sample.of(p).mean("label_log_prob", "nll")  # certain answers: 0, never -0


def brier(p: Measurable) -> float:
    r"""Brier score, summed over classes.

    Range 0 to 2, lower is better. :math:`\frac1N \sum_i \sum_k (p_{ik} - [k = y_i])^2`. Strictly
    proper. (Halve it to compare with binary scores that count one class only.)

    References
    ----------
    Brier (1950), doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.

    >>> from calibrant import Predictions, metrics
    >>> round(metrics.brier(Predictions(probs=[[0.5, 0.5], [0.2, 0.8]], labels=[0, 1])), 4)
    0.29
    """
    return Sample.of(p).mean("brier_terms", "brier")


def mean_confidence(p: Measurable | Ranked) -> float:
    r"""Mean probability of the predicted class.

    Range 1/K to 1; neither direction is better in itself. Above the accuracy, the model is
    overconfident on average. :math:`\frac1N \sum_i \max_k p_{ik}`.

    >>> from calibrant import Confidences, metrics
    >>> metrics.mean_confidence(Confidences(confidence=[0.5, 1.0], correct=[0, 1]))
    0.75
    """
    return rank(p).mean_confidence


def mean_entropy(p: Measurable) -> float:
    r"""Mean entropy of the predicted distribution, in nats: the average uncertainty.

    Range 0 to ln K; neither direction is better in itself.
    :math:`-\frac1N \sum_i \sum_k p_{ik} \log p_{ik}`, with 0 log 0 = 0.

    >>> from calibrant import Predictions, metrics
    >>> round(metrics.mean_entropy(Predictions(probs=[[0.5, 0.5], [0.0, 1.0]], labels=[0, 1])), 4)
    0.3466
    """
    return Sample.of(p).mean("entropy", "mean_entropy")
