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
from tests.close import assert_close

# Trained parameters for 10 classes and 3 channels. He et al. 2016, Table 6, print 0.27, 0.46, 0.66,
# 0.85 and 1.7 million; Zagoruyko and Komodakis 2016, Table 4, 36.5 million for WRN-28-10 and 2.8
# for WRN-16-4 (2.7 in Table 3). The others are the sizes in wide use for 32 x 32 images, and our
# own for speednet: 9 (24·32 + 32·64 + 64·64 + 64·128 + 128·128) in convolutions, 2 (32 + 64 + 64 +
# 128 + 128) in their normalisation, 1,290 in the last layer; its filters are not trained.
PUBLISHED = {
    "resnet8": 75_290,
    "speednet": 285_514,
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


def patches(images: Tensor) -> Tensor:
    """Every 4 x 4 patch at even rows and columns, one per row, without unfold."""
    size = images.shape[2]
    corners = [(r, c) for r in range(0, size - 3, 2) for c in range(0, size - 3, 2)]
    return torch.cat([images[:, :, r : r + 4, c : c + 4].flatten(1) for r, c in corners])


def smooth_images(count: int) -> Tensor:
    """Images whose neighbouring pixels and channels are alike, as those of photographs are."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(count, 3, 8, 8, generator=generator)
    fine = 0.1 * torch.randn(count, 3, 32, 32, generator=generator)
    mixed = torch.einsum("ij,njhw->nihw", torch.tensor([[1.0, 0.9, 0.8]] * 3).triu(), coarse)
    return torch.nn.functional.interpolate(mixed, (32, 32), mode="bilinear") + fine


def test_speednet_whitens_the_patches_it_was_prepared_with() -> None:
    net = build("speednet", kind="image", num_classes=10, size=(3, 32, 32))
    images = smooth_images(200)
    found = patches(images).double()
    assert (found.T.cov() - torch.eye(48)).abs().max() > 0.3  # not white before
    net.prepare(images)
    white = found @ net.whitening.double().flatten(1).T
    assert_close(white.T.cov(correction=0), torch.eye(24).double(), atol=1e-4, rtol=0)
    # The directions that vary most: no others leave less of the patches unexplained.
    shares = torch.linalg.eigvalsh(found.T.cov(correction=0)).flip(0)
    scale = net.whitening.double().flatten(1).square().sum(1)
    assert_close(1 / scale, shares[:24], atol=0, rtol=1e-4)
    # In the network they see every second pixel, one pixel of padding around the image.
    seen = torch.nn.functional.conv2d(images, net.whitening, stride=2, padding=1)
    assert seen.shape[2:] == (16, 16)


def test_speednet_is_prepared_the_same_again_and_from_flat_images() -> None:
    images = smooth_images(50)
    one, two = (build("speednet", kind="image", num_classes=4, size=(3, 32, 32)) for _ in range(2))
    assert not torch.equal(one.whitening, two.whitening)
    one.prepare(images)
    two.prepare(images)
    assert torch.equal(one.whitening, two.whitening)
    assert "whitening" in one.state_dict()
    assert "whitening" not in dict(one.named_parameters())
    one.prepare(torch.zeros(3, 3, 32, 32))
    assert one.whitening.isfinite().all()
    assert one(images).isfinite().all()


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
    assert_close(net.states(trees), want)
    assert_close(net(trees), net.head(want[trees.roots]))
    assert_close(net.nodes(trees), net.head(want))


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


def test_fixed_filters_are_loaded_with_the_weights(tmp_path: Path) -> None:
    net, other = (build("speednet", kind="image", num_classes=3, size=(3, 16, 16)) for _ in "ab")
    net.prepare(smooth_images(20))
    torch.save(net.state_dict(), tmp_path / "a.pt")
    load_weights(other, tmp_path / "a.pt")
    assert torch.equal(net.whitening, other.whitening)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(net.eval()(x), other.eval()(x))
    torch.save({k: v for k, v in net.state_dict().items() if k != "whitening"}, tmp_path / "b.pt")
    with pytest.raises(InputError, match="no whitening"):
        load_weights(other, tmp_path / "b.pt")


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
