"""Event2Vec: read event-camera recordings the way a language model reads words.

A recording flows down this list, and every file does one step of it:

    errors, names       what goes wrong; names that people chose, shown safely
    atomic, documents   files that appear whole or not at all; JSON and YAML that may hold anything
    locks, workers      one process at a time in a folder; processes that end with the one they work for
    settings            dataclasses <-> YAML, JSON and options, every name and type checked
    randomness          generators seeded by (seed, epoch, index)
    machine, stages     settings that make torch quicker on a CPU; how long work tells of itself
    devices             the device and number type in which networks run
    events              Sensor, Events, EventBatch: the only types that travel between files
    io/                 file <-> Events
    sampling            how a recording is brought to L events; uniform random sampling (Sec. 3.4)
    clustering          batched K-Means++ (Alg. 1); kmeans_baselines: what it is compared with
    clouds              its phases in torch; compiled_cloud: in C, for a CPU
    store               EventStore: columns on disk, memory-mapped; what training reads
    datasets/           a data set as people download it -> recordings with labels and a split
    prepare             a data set -> a store, in parallel and resumable
    embedding           events -> tokens (Eq. 1-7)
    attention           forgetting and gated linear attention, in both directions (Eq. 8-10)
    backbone, heads     Transformer blocks, pooling; tokens -> classes or hidden events (Eq. 11)
    model               ModelConfig, Classifier, MaskedEventModel
    checkpoint          networks on disk; authors: their published checkpoints, made ours
    masking, augment    what pre-training hides (App. A.5); changes that keep the class (App. A.9)
    objectives          classification and masked reconstruction: batch -> loss and metrics
    recipe              all settings of a training; recipes/*.yaml
    loading, runs       recordings -> batches; what lies in the folder of a run
    learner, training   Lightning: optimiser, schedule, checkpoints; runs begun and gone on with
    repeats             mean and deviation of what was found several times
    evaluate, probe     accuracy as mean and deviation, class by class; linear probing
    experiment, tables  tables of the paper, row by row; experiments/*.yaml
    report              one page about a run; page/: its style and its event player
    figures/            pictures of events
    benchmark/          speed and memory, measured against alternatives on the same machine
    cli/                one file for each verb: parse, call, print

Public names are loaded when they are first used, so that `event2vec --help` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from event2vec.attention import forgetting_attention as forgetting_attention
    from event2vec.authors import import_checkpoint as import_checkpoint
    from event2vec.checkpoint import load_model as load_model
    from event2vec.checkpoint import save_model as save_model
    from event2vec.clustering import cluster_batch as cluster_batch
    from event2vec.clustering import cluster_events as cluster_events
    from event2vec.datasets import open_dataset as open_dataset
    from event2vec.errors import Event2VecError as Event2VecError
    from event2vec.errors import Event2VecWarning as Event2VecWarning
    from event2vec.events import EventBatch as EventBatch
    from event2vec.events import Events as Events
    from event2vec.events import Sensor as Sensor
    from event2vec.io import read_events as read_events
    from event2vec.io import write_events as write_events
    from event2vec.model import Classifier as Classifier
    from event2vec.model import ModelConfig as ModelConfig
    from event2vec.model import Prediction as Prediction
    from event2vec.model import build_model as build_model
    from event2vec.recipe import Recipe as Recipe
    from event2vec.recipe import load_recipe as load_recipe
    from event2vec.sampling import Sampling as Sampling
    from event2vec.sampling import sample_uniform as sample_uniform
    from event2vec.store import EventStore as EventStore

__version__ = "0.1.0"

_HOMES = {
    "Event2VecError": "errors",
    "Event2VecWarning": "errors",
    "Sensor": "events",
    "Events": "events",
    "EventBatch": "events",
    "read_events": "io",
    "write_events": "io",
    "Sampling": "sampling",
    "sample_uniform": "sampling",
    "cluster_events": "clustering",
    "cluster_batch": "clustering",
    "EventStore": "store",
    "open_dataset": "datasets",
    "forgetting_attention": "attention",
    "ModelConfig": "model",
    "Classifier": "model",
    "Prediction": "model",
    "build_model": "model",
    "save_model": "checkpoint",
    "load_model": "checkpoint",
    "import_checkpoint": "authors",
    "Recipe": "recipe",
    "load_recipe": "recipe",
}
__all__ = list(_HOMES)  # in flow order


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'event2vec' has no attribute '{name}'")
    return getattr(import_module(f"event2vec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
