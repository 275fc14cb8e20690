"""Training: one loop, the recipes of the papers, and a training history."""

from calibrant._core.extras import import_extra

# ruff: noqa: E402 - whoever lacks the package reads how to get it, not where an import failed
import_extra("torch", "calibrant.train")

from calibrant.train._backbones import BACKBONES, Backbone
from calibrant.train._checkpoint import TrainingError
from calibrant.train._feature_files import write_features
from calibrant.train._loop import train
from calibrant.train._precision import choose_precision
from calibrant.train._predict import extract_features, predict
from calibrant.train._recipes import RECIPES, Recipe, get_recipe
from calibrant.train._records import epochs_table, is_finished, read_run
from calibrant.train._stopping import EarlyStopping
from calibrant.train._trained import Moment, Trained
from calibrant.train._word_vectors import WordVectors, load_texts

__all__ = [
    "BACKBONES",
    "RECIPES",
    "Backbone",
    "EarlyStopping",
    "Moment",
    "Recipe",
    "Trained",
    "TrainingError",
    "WordVectors",
    "choose_precision",
    "epochs_table",
    "extract_features",
    "get_recipe",
    "is_finished",
    "load_texts",
    "predict",
    "read_run",
    "train",
    "write_features",
]
