"""Networks of the papers, one architecture per file. ``MODELS`` lists what ``build`` can create.

Each has ``features(x)``, the input of its last layer, and that layer as ``head``.
"""

from calibrant._core.extras import import_extra

# ruff: noqa: E402 - whoever lacks the package reads how to get it, not where an import failed
import_extra("torch", "calibrant.models")

from calibrant.models._base import Classifier, Head
from calibrant.models._cnn1d import SignalCNN, TextCNN
from calibrant.models._densenet import DenseNet
from calibrant.models._mlp import MLP
from calibrant.models._registry import MODELS, Model, build, check, load_weights, num_parameters
from calibrant.models._resnet import ResNet
from calibrant.models._resnet_cifar import CifarResNet
from calibrant.models._speednet import SpeedNet
from calibrant.models._tree_lstm import TreeLSTM
from calibrant.models._vgg import VGG16
from calibrant.models._wide_resnet import WideResNet

__all__ = [
    "MLP",
    "MODELS",
    "VGG16",
    "CifarResNet",
    "Classifier",
    "DenseNet",
    "Head",
    "Model",
    "ResNet",
    "SignalCNN",
    "SpeedNet",
    "TextCNN",
    "TreeLSTM",
    "WideResNet",
    "build",
    "check",
    "load_weights",
    "num_parameters",
]
