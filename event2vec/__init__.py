"""Event2Vec: read event-camera recordings the way a language model reads words.

A recording flows through the rooms in order, and every file does one step of it. Imports point up this list.

    errors, names           what goes wrong; names that people chose, shown safely
    sensor, events          Sensor, Events, EventBatch: the only types that travel between rooms
    atomic, locks, workers  files that appear whole or not at all; one process at a time; workers end with their parent
    documents, settings     JSON and YAML that may hold anything; dataclasses <-> YAML, JSON and options
    devices, cpu, progress  where networks run; what makes torch quicker on a CPU; how far long work is

    io/                     file <-> Events, one file for each family of formats
    clustering/             batched K-Means++ (Alg. 1), in C and in torch; alternatives: scikit-learn and Faiss
    data/                   data sets as downloaded -> a store of columns -> the events that a network reads
    model/                  events -> tokens (Eq. 1-7) -> attention both ways (Eq. 8-10) -> class or hidden events
    evaluation/             how good, how robust and how fast a network is; figures/: pictures of what it learnt
    training/               recipes, augmentation, objectives, runs, Lightning; the authors' checkpoints
    studies/                tables of the paper, and one page about a run
    benchmark/              speed and memory, measured against alternatives on the same machine
    cli/                    one file for each verb: parse, call, print
    recipes/, experiments/  settings in YAML

Public names are loaded when they are first used, so that `event2vec --help` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from event2vec.clustering import cluster_batch as cluster_batch
    from event2vec.clustering import cluster_events as cluster_events
    from event2vec.data.batches import collate as collate
    from event2vec.data.datasets import open_dataset as open_dataset
    from event2vec.data.sampling import Sampling as Sampling
    from event2vec.data.sampling import sample_uniform as sample_uniform
    from event2vec.data.store import EventStore as EventStore
    from event2vec.errors import Event2VecError as Event2VecError
    from event2vec.errors import Event2VecWarning as Event2VecWarning
    from event2vec.events import EventBatch as EventBatch
    from event2vec.events import Events as Events
    from event2vec.io import read_events as read_events
    from event2vec.io import write_events as write_events
    from event2vec.model.attention import forgetting_attention as forgetting_attention
    from event2vec.model.checkpoint import load_model as load_model
    from event2vec.model.checkpoint import save_model as save_model
    from event2vec.model.classifier import Classifier as Classifier
    from event2vec.model.classifier import Prediction as Prediction
    from event2vec.model.classifier import build_model as build_model
    from event2vec.model.config import ModelConfig as ModelConfig
    from event2vec.sensor import Sensor as Sensor
    from event2vec.training.authors import import_checkpoint as import_checkpoint
    from event2vec.training.recipe import Recipe as Recipe
    from event2vec.training.recipe import load_recipe as load_recipe

__version__ = "0.1.0"

_HOMES = {
    "Event2VecError": "errors",
    "Event2VecWarning": "errors",
    "Sensor": "sensor",
    "Events": "events",
    "EventBatch": "events",
    "read_events": "io",
    "write_events": "io",
    "cluster_events": "clustering",
    "cluster_batch": "clustering",
    "Sampling": "data.sampling",
    "sample_uniform": "data.sampling",
    "EventStore": "data.store",
    "open_dataset": "data.datasets",
    "collate": "data.batches",
    "forgetting_attention": "model.attention",
    "ModelConfig": "model.config",
    "Classifier": "model.classifier",
    "Prediction": "model.classifier",
    "build_model": "model.classifier",
    "save_model": "model.checkpoint",
    "load_model": "model.checkpoint",
    "Recipe": "training.recipe",
    "load_recipe": "training.recipe",
    "import_checkpoint": "training.authors",
}
__all__ = list(_HOMES)  # in flow order


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'event2vec' has no attribute '{name}'")
    return getattr(import_module(f"event2vec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
