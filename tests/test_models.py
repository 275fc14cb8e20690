"""Networks: published sizes, shapes, gradients, weights from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrant import InputError
from calibrant.data import load
from calibrant.models import MODELS, build, load_weights, num_parameters

# Trained parameters for 10 classes and 3 channels. He et al. 2016, Table 6, print 0.27, 0.46, 0.66,
# 0.85 and 1.7 million; Zagoruyko and Komodakis 2016, Table 4, 36.5 million for WRN-28-10 and 2.8
# for WRN-16-4 (2.7 in Table 3). The others are the sizes in wide use for 32 x 32 images.
PUBLISHED = {
    "resnet8": 75_290,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
    "resnet18": 11_173_962,
    "resnet50": 23_520_842,
    "wrn16-4": 2_748_890,
    "wrn26-10": 36_479_194,
    "wrn28-10": 36_479_194,
    "vgg16": 14_728_266,
    "densenet121": 6_956_298,
}
SIZES = {"image": (3, 32, 32), "vector": (20,), "signal": (2, 64), "tokens": 50, "trees": 50}


@dataclass(frozen=True)
class Trees:
    words: Tensor
    levels: tuple[Tensor, ...]
    roots: Tensor


def sample(kind: str, count: int = 4):
    if kind == "tokens":
        return torch.randint(50, (count, 30))
    if kind == "trees":  # ((a b) c) and (a b)
        levels = (torch.tensor([[0, 1], [3, 4]]), torch.tensor([[5, 2]]))
        return Trees(torch.tensor([3, 4, 5, 6, 7]), levels, torch.tensor([7, 6]))
    return torch.randn(count, *SIZES[kind])


def test_every_image_network_has_its_published_size() -> None:
    assert set(PUBLISHED) == {name for name, model in MODELS.items() if model.kinds == ("image",)}


LARGE = ("wrn28-10", "wrn26-10", "wrn16-4", "resnet50", "densenet121", "resnet110", "resnet56")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    with torch.device("meta"):
        net = build(name, kind="image", num_classes=10, size=(3, 32, 32))
    assert num_parameters(net) == PUBLISHED[name]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in MODELS]
)
def test_shapes_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    for kind in MODELS[name].kinds:
        heavy = name in ("wrn28-10", "wrn26-10", "resnet50", "densenet121")
        net = build(name, kind=kind, num_classes=7, size=SIZES[kind])
        x = sample(kind, 2 if heavy else 4)
        z = net(x)
        count = len(x.roots) if kind == "trees" else len(x)
        assert z.shape == (count, 7)
        assert net.features(x).shape == (count, net.head.in_features)
        z.square().sum().backward()
        for label, parameter in net.named_parameters():
            assert parameter.grad is not None, label
            assert parameter.grad.isfinite().all()


def test_tree_lstm_equals_node_by_node() -> None:
    """The equations of Tai et al., one node at a time, on random trees."""
    torch.manual_seed(1)
    net = build("tree_lstm", kind="trees", num_classes=2, size=50, hidden=6).double().eval()
    trees = sample("trees")

    def state(node: int) -> tuple[Tensor, Tensor]:
        if node < len(trees.words):
            c, o = net.leaf(net.embedding(trees.words[node])).chunk(2)
            return c, o.sigmoid() * c.tanh()
        left, right = torch.cat(trees.levels)[node - len(trees.words)].tolist()
        (cl, hl), (cr, hr) = state(left), state(right)
        new, i, fl, fr, o = net.node(torch.cat([hl, hr])).chunk(5)
        c = i.sigmoid() * new.tanh() + fl.sigmoid() * cl + fr.sigmoid() * cr
        return c, o.sigmoid() * c.tanh()

    want = torch.stack([state(node)[1] for node in range(8)])
    torch.testing.assert_close(net.states(trees), want)
    torch.testing.assert_close(net(trees), net.head(want[trees.roots]))
    torch.testing.assert_close(net.nodes(trees), net.head(want))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build("resnet2", kind="image", num_classes=2, size=(3, 8, 8)), "Did you mean"),
        (lambda: build("mlp", kind="tokens", num_classes=2, size=9), "Try one of: textcnn"),
        (lambda: build("mlp", kind="vector", num_classes=2, size=(3,), hiden=(2,)), "'hidden'"),
        (lambda: build("vgg16", kind="image", num_classes=2, size=(3, 8, 8), a=1), "has none"),
    ],
)
def test_bad_networks(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_weights_from_files(tmp_path: Path) -> None:
    net = build("resnet8", kind="image", num_classes=10, size=(3, 32, 32))
    named = {"module." + k.replace("head.", "linear."): v for k, v in net.state_dict().items()}
    torch.save({"state_dict": named, "best_prec1": 1.0}, tmp_path / "a.pt")
    other = build("resnet8", kind="image", num_classes=10, size=(3, 32, 32))
    load_weights(other, tmp_path / "a.pt")
    for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    wrong = build("resnet20", kind="image", num_classes=10, size=(3, 32, 32))
    with pytest.raises(InputError, match="must fit CifarResNet"):
        load_weights(wrong, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"not a file of tensors")
    with pytest.raises(InputError, match=r"b\.pt"):
        load_weights(other, tmp_path / "b.pt")


def public_logits(shared: Path, depth: int, images: np.ndarray) -> np.ndarray:
    """What a public checkpoint of a ResNet for CIFAR-10 gives."""
    (weights,) = (shared / "data" / "checkpoints").glob(f"resnet{depth}-*.th")
    net = build(f"resnet{depth}", kind="image", num_classes=10, size=(3, 32, 32))
    load_weights(net, weights).eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = torch.tensor(images).float() / 255
    with torch.no_grad():  # of few images at a time, what a layer returns stays in the cache
        parts = ((x - mean[:, None, None]) / std[:, None, None]).split(100)
        return torch.cat([net(part) for part in parts]).numpy()


@pytest.mark.slow
def test_a_public_checkpoint_has_its_known_error(shared: Path, data_folder: Path) -> None:
    """The test error printed by the author of the checkpoint, on the first 2,000 test images."""
    data = load("cifar10", folder=data_folder)
    z = public_logits(shared, 32, data.x_test[:2000])
    assert 100 * (z.argmax(1) != data.y_test[:2000]).mean() == pytest.approx(7.37, abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [20, 56])
def test_public_checkpoints_give_their_known_logits(
    shared: Path, data_folder: Path, depth: int
) -> None:
    known = np.load(shared / "data" / "logits" / f"cifar10_akamaster_resnet{depth}_test.npz")
    z = public_logits(shared, depth, load("cifar10", folder=data_folder).x_test[:200])
    np.testing.assert_allclose(z, known["logits"][:200], atol=2e-4)
