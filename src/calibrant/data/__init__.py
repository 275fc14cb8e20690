"""Data sets in their published formats, your own and embedded ones; splits and corruptions.

``DATASETS`` lists the sets and ``SHIFTS`` the shifted test sets; :func:`load` and
:func:`load_shift` read them, :func:`download` fetches them. Files are looked for in the folder
given by the environment variable ``CALIBRANT_DATA``. They are untrusted: nothing is unpickled, and
sizes are checked before anything is allocated.

``calibrant.data.augment`` augments batches in PyTorch; nothing else here imports it.
"""

from calibrant.data._archives import unpack
from calibrant.data._cifar import load_cifar10h
from calibrant.data._corruptions import CORRUPTIONS, Corruption, corrupt
from calibrant.data._dataset import Dataset
from calibrant.data._image_folders import ImageFiles
from calibrant.data._news import strip_message
from calibrant.data._registry import GENERATED, download, load_shift, parse_shift
from calibrant.data._signals import signals
from calibrant.data._sources import DATASETS, SHIFTS, DatasetInfo, ShiftInfo, check, load
from calibrant.data._splits import Split, split
from calibrant.data._synthetic import synthetic
from calibrant.data._text import Vocabulary, load_glove, tokenise
from calibrant.data._trees import TreeBatch, Trees, batch_trees, make_trees
from calibrant.data._user_npz import from_arrays

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "GENERATED",
    "SHIFTS",
    "Corruption",
    "Dataset",
    "DatasetInfo",
    "ImageFiles",
    "ShiftInfo",
    "Split",
    "TreeBatch",
    "Trees",
    "Vocabulary",
    "batch_trees",
    "check",
    "corrupt",
    "download",
    "from_arrays",
    "load",
    "load_cifar10h",
    "load_glove",
    "load_shift",
    "make_trees",
    "parse_shift",
    "signals",
    "split",
    "strip_message",
    "synthetic",
    "tokenise",
    "unpack",
]
