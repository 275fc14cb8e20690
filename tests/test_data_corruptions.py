"""Corruptions: every one at every level, farther from the clean image each time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from calibrant import InputError
from calibrant.data import CORRUPTIONS, corrupt, load
from calibrant.data import _image_ops as pictures

PUBLISHED = """gaussian_noise shot_noise impulse_noise defocus_blur motion_blur zoom_blur snow frost
fog brightness contrast elastic_transform pixelate jpeg_compression"""


def scenes(count: int, channels: int, height: int, width: int) -> np.ndarray:
    """Images with edges and smooth parts."""
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(
        rng.normal(size=(count, channels, height, width)), (0, 0, 3, 3)
    )
    smooth /= smooth.std()
    edges = np.sign(
        ndimage.gaussian_filter(rng.normal(size=(count, 1, height, width)), (0, 0, 2, 2))
    )
    return np.clip(120 + 30 * smooth + 50 * edges, 0, 255).astype(np.uint8)


SETS = {
    "colour 32": scenes(40, 3, 32, 32),
    "grey 28": scenes(40, 1, 28, 28),
    "oblong 30x45": scenes(20, 3, 30, 45),
    "colour 64": scenes(12, 3, 64, 64),
}


def test_the_published_ones_are_there() -> None:
    assert set(PUBLISHED.split()) <= set(CORRUPTIONS)
    assert all(len(corruption.strengths) == 5 for corruption in CORRUPTIONS.values())
    assert all(name == corruption.name for name, corruption in CORRUPTIONS.items())


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("images", SETS.values(), ids=SETS)
def test_distance_grows_with_level(name: str, images: np.ndarray) -> None:
    kept = images.copy()
    distances = [0.0]
    for level in range(1, 6):
        changed = corrupt(images, name, level)
        assert changed.shape == images.shape
        assert changed.dtype == np.uint8
        distances.append(float(np.mean((changed.astype(float) - images) ** 2)))
    assert (np.diff(distances) > 0).all(), distances
    np.testing.assert_array_equal(images, kept)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_distance_grows_on_real_digits(name: str) -> None:
    images = load("digits").x_test[:200]
    distances = [
        np.mean((corrupt(images, name, k).astype(float) - images) ** 2) for k in range(1, 6)
    ]
    assert (np.diff([0, *distances]) > 0).all(), distances


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seeds(name: str) -> None:
    images = SETS["colour 32"][:6]
    one = corrupt(images, name, 3, seed=1)
    np.testing.assert_array_equal(one, corrupt(images, name, 3, seed=1))
    steady = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
    assert (one != corrupt(images, name, 3, seed=2)).any() == (name not in steady)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_no_images_black_and_white_ones(name: str) -> None:
    assert corrupt(np.zeros((0, 3, 32, 32), np.uint8), name, 1).shape == (0, 3, 32, 32)
    for value in (0, 255):
        plain = np.full((2, 3, 32, 32), value, np.uint8)
        assert corrupt(plain, name, 5).dtype == np.uint8


def test_many_images_are_worked_on_in_pieces() -> None:
    images = np.repeat(SETS["grey 28"], 8, axis=0)
    changed = corrupt(images, "contrast", 2)
    np.testing.assert_array_equal(changed[:40], corrupt(images[:40], "contrast", 2))
    noisy = corrupt(images, "gaussian_noise", 2).astype(int) - images
    assert (noisy[:40] != noisy[256:296]).any()


def test_what_is_refused() -> None:
    images = SETS["colour 32"]
    with pytest.raises(InputError, match="Did you mean 'fog'"):
        corrupt(images, "fogg", 1)
    with pytest.raises(InputError, match="level"):
        corrupt(images, "fog", 0)
    with pytest.raises(InputError, match="uint8"):
        corrupt(images / 255, "fog", 1)
    with pytest.raises(InputError, match="uint8"):
        corrupt(images[0], "fog", 1)


# --- the parts, against slow and plain twins ------------------------------------------------------


def test_convolve() -> None:
    rng = np.random.default_rng(0)
    x, kernels = rng.random((3, 2, 11, 14)).astype(np.float32), rng.random((3, 5, 5))
    expected = [
        [ndimage.convolve(channel, kernel, mode="reflect") for channel in image]
        for image, kernel in zip(x.astype(float), kernels, strict=True)
    ]
    np.testing.assert_allclose(pictures.convolve(x, kernels), expected, rtol=1e-4)


def test_displace() -> None:
    rng = np.random.default_rng(0)
    x, shifts = rng.random((3, 2, 9, 12)), rng.normal(0, 2, (2, 3, 9, 12))
    places = np.mgrid[:9, :12][:, None] + shifts
    expected = [
        [ndimage.map_coordinates(c, places[:, k], order=1, mode="nearest") for c in x[k]]
        for k in range(3)
    ]
    np.testing.assert_allclose(pictures.displace(x, shifts), expected, atol=1e-12)


def test_kernels_have_unit_sum_and_the_right_width() -> None:
    for kernel in (pictures.disk(2.3), *pictures.strokes(6.0, np.array([0, 0.7, -0.5]))):
        assert abs(kernel.sum() - 1) < 1e-12
    disk = pictures.disk(3.0)
    row = np.arange(len(disk)) - len(disk) // 2
    # The variance of a disk is r²/4, that of a line l²/12; a pixel adds its own 1/12 or so.
    assert abs((disk.sum(0) * row**2).sum() - 3**2 / 4 - 1 / 12) < 0.03
    stroke = pictures.strokes(6.0, np.array([0.0]))[0]
    row = np.arange(len(stroke)) - len(stroke) // 2
    assert abs((stroke.sum(0) * row**2).sum() - 6**2 / 12 - 1 / 6) < 0.03


def test_zoom_and_coarse_pixels() -> None:
    x = np.random.default_rng(0).random((2, 1, 8, 12)).astype(np.float32)
    np.testing.assert_allclose(pictures.zooms(x, np.array([1.0])), x, rtol=1e-6)
    blocks = x.reshape(2, 1, 4, 2, 6, 2).mean(axis=(3, 5)).repeat(2, 2).repeat(2, 3)
    np.testing.assert_allclose(pictures.coarsen(x, 0.5), blocks, rtol=1e-5)


def test_jpeg_against_a_real_encoder() -> None:
    """As far from the clean image as Pillow's encoder without thinned colours, to 1 per cent."""
    import io

    image = pytest.importorskip("PIL.Image")
    images = SETS["colour 32"][:10]
    for quality in (80, 50, 20):
        ours = np.rint(
            255 * np.clip(pictures.jpeg(images / np.float32(255), quality=quality), 0, 1)
        )
        theirs = []
        for one in images:
            stream = io.BytesIO()
            picture = image.fromarray(one.transpose(1, 2, 0))
            picture.save(stream, "JPEG", quality=quality, subsampling=0)
            theirs.append(np.asarray(image.open(stream)).transpose(2, 0, 1))
        errors = [
            np.sqrt(np.mean((y - images.astype(float)) ** 2)) for y in (ours, np.array(theirs))
        ]
        assert abs(errors[0] / errors[1] - 1) < 0.01
        assert np.abs(ours - theirs).mean() < 0.15 * errors[1]
