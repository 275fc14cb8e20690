"""The list of networks by name, how to build one for given data, and how to load weights."""

from __future__ import annotations

import inspect
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from calibrant._core.checks import InputError, near_name, refuse
from calibrant._core.files import check_regular
from calibrant._core.import_paths import import_object, is_import_path
from calibrant._core.memory import check_size
from calibrant._core.options import check_option_names
from calibrant.models._base import Classifier
from calibrant.models._cnn1d import SignalCNN, TextCNN
from calibrant.models._densenet import DenseNet
from calibrant.models._mlp import MLP
from calibrant.models._resnet import Basic, Bottleneck, ResNet
from calibrant.models._resnet_cifar import CifarResNet
from calibrant.models._speednet import SpeedNet
from calibrant.models._tree_lstm import TreeLSTM
from calibrant.models._vgg import VGG16
from calibrant.models._wide_resnet import WideResNet

Kind = Literal["image", "vector", "signal", "tokens", "trees"]
SIZES = {"in_channels", "in_features", "vocabulary_size"}


@dataclass(frozen=True)
class Model:
    """A network by name: what builds it, and the kinds of data it takes."""

    make: Callable[..., Classifier]
    kinds: tuple[Kind, ...]
    summary: str

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that are not fixed by the data."""
        fixed = SIZES | {"num_classes"}
        if isinstance(self.make, partial):
            fixed |= set(self.make.keywords)
            taken = len(self.make.args)
        else:
            taken = 0
        names = list(inspect.signature(_class_of(self.make)).parameters)[taken:]
        return tuple(name for name in names if name not in fixed)


def _class_of(make: Callable[..., Classifier]) -> Callable[..., Classifier]:
    return make.func if isinstance(make, partial) else make


def _cifar(depth: int) -> Model:
    return Model(partial(CifarResNet, depth), ("image",), f"ResNet-{depth} for 32 x 32 images")


def _wide(depth: int, widen: int) -> Model:
    return Model(partial(WideResNet, depth, widen), ("image",), f"wide ResNet {depth}-{widen}")


MODELS: dict[str, Model] = {
    "mlp": Model(MLP, ("image", "vector", "signal"), "two hidden layers of 128"),
    "cnn1d": Model(SignalCNN, ("signal",), "small CNN over one dimension"),
    "textcnn": Model(TextCNN, ("tokens",), "8-layer CNN over words"),
    "tree_lstm": Model(TreeLSTM, ("trees",), "binary constituency Tree-LSTM"),
    **{f"resnet{depth}": _cifar(depth) for depth in (8, 20, 32, 44, 56, 110)},
    "speednet": Model(
        SpeedNet, ("image",), "five convolutions for 32 x 32 images, quickly trained"
    ),
    "resnet18": Model(partial(ResNet, Basic, (2, 2, 2, 2)), ("image",), "ResNet-18"),
    "resnet50": Model(partial(ResNet, Bottleneck, (3, 4, 6, 3)), ("image",), "ResNet-50"),
    "wrn16-4": _wide(16, 4),
    "wrn26-10": _wide(26, 10),
    "wrn28-10": _wide(28, 10),
    "vgg16": Model(VGG16, ("image",), "VGG-16 with batch normalisation"),
    "densenet121": Model(DenseNet, ("image",), "DenseNet-121"),
}


def build(
    name: str, *, kind: Kind, num_classes: int, size: tuple[int, ...] | int, **options: Any
) -> Classifier:
    """Build a network for data of a kind and size.

    Parameters
    ----------
    name
        A name in ``MODELS``, or the import path ``package.module:factory`` of your own, which is
        called with ``num_classes=``, ``size=`` and the options and returns a ``torch.nn.Module``.
    kind
        Kind of the data: image, vector, signal, tokens or trees.
    num_classes
        Number of outputs.
    size
        Shape of one sample, (channels, height, width), (features,), (channels, length); for
        tokens and trees the number of words in the vocabulary.
    **options
        What else the network takes, such as ``hidden=`` of the mlp.

    Examples
    --------
    >>> net = build("resnet20", kind="image", num_classes=10, size=(3, 32, 32))
    >>> num_parameters(net)
    269722
    """
    check(name, options)
    if name not in MODELS:
        own: Classifier = build_own(import_object(name, "model"), num_classes, size, options)
        return own
    model = MODELS[name]
    if kind not in model.kinds:
        fitting = ", ".join(key for key, other in MODELS.items() if kind in other.kinds)
        rule = f"must take data of the kind {kind!r}"
        raise refuse(
            "model",
            rule,
            f"got {name!r}, which takes {', '.join(model.kinds)}",
            f"Try one of: {fitting}.",
        )
    return model.make(num_classes=num_classes, **_sizes(name, kind, size), **options)


def check(name: str, options: Collection[str] = ()) -> None:
    """Reject unknown networks and options."""
    if name not in MODELS:
        if is_import_path(name):
            return
        rule = "must name a known network, or be an import path package.module:factory"
        raise refuse("model", rule, f"got {name!r}", near_name(name, MODELS))
    check_option_names(f"model {name}", options, MODELS[name].options)


def build_own(
    factory: Any, num_classes: int, size: tuple[int, ...] | int, options: Mapping[str, Any]
) -> Any:
    """A network of the user's own."""
    try:
        made = factory(num_classes=num_classes, size=size, **options)
    except TypeError as error:
        rule = "must be callable with num_classes=, size= and the options"
        raise refuse("model", rule, f"got {error}", "See docs/own.md.") from error
    if not isinstance(made, nn.Module):
        rule = "must make a torch.nn.Module"
        raise refuse("model", rule, f"got {type(made).__name__}", "Return the network.")
    return made


def _sizes(name: str, kind: Kind, size: tuple[int, ...] | int) -> dict[str, int]:
    if isinstance(size, int):
        return {"vocabulary_size": size}
    if name == "mlp":
        return {"in_features": int(torch.Size(size).numel())}
    return {"in_features" if kind == "vector" else "in_channels": size[0]}


def num_parameters(model: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """Load weights from a file of tensors; nothing in it is executed.

    Takes a state dict, or one under ``state_dict`` or ``model``, with or without the prefix
    ``module.``; a last layer named ``linear`` or ``fc`` is our ``head``.

    Parameters
    ----------
    model
        The network, as built.
    path
        A file written by ``torch.save``.
    """
    found = load_tensors(Path(path), "path", "Save model.state_dict() and try again.")
    for key in ("state_dict", "model"):
        if isinstance(found.get(key), dict):
            found = found[key]
    wanted = model.state_dict()
    weights = {
        _renamed(str(name)): tensor for name, tensor in found.items() if isinstance(tensor, Tensor)
    }
    for name, tensor in wanted.items():
        if name.endswith("num_batches_tracked"):  # a counter that older files do not have
            weights.setdefault(name, tensor)
    faults = [f"no {name}" for name in wanted if name not in weights]
    faults += [f"unknown {name}" for name in weights if name not in wanted]
    faults += [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if faults:
        rule = f"must fit {type(model).__name__}"
        raise refuse(
            "path",
            rule,
            f"got {len(faults)} faults: {'; '.join(faults[:3])}",
            "Build the network these weights were saved from.",
        )
    model.load_state_dict(weights)
    return model


def load_tensors(path: Path, argument: str, advice: str) -> dict[Any, Any]:
    """What ``torch.save`` wrote, as a dictionary of tensors and plain values.

    Nothing in the file is executed, and what it unpacks to must fit into memory.
    """
    check_regular(path)
    rule = "must be a file of tensors written by torch.save"
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_size(sum(info.file_size for info in archive.infolist()), path.name)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # PyTorch raises many kinds of errors for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise refuse(argument, rule, f"got {path}: {reason}", advice) from error
    if not isinstance(found, dict):
        raise refuse(argument, rule, f"got {path} with a {type(found).__name__}", advice)
    return found


def _renamed(name: str) -> str:
    name = name.removeprefix("module.")
    for other in ("linear.", "fc."):
        if name.startswith(other):
            return "head." + name.removeprefix(other)
    return name
