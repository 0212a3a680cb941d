"""Event2Vec: read event-camera recordings the way a language model reads words.

A recording flows through the rooms in order, and every file does one step of it. Imports point up this list.

    errors, names, choices  what goes wrong; names that people chose, shown safely; names to choose between
    arguments               one value where several are expected, values of the wrong kind
    sensor, columns, events Sensor, Events, EventBatch: the only types that travel between rooms; tensors or arrays
    mersenne                torch's random numbers, drawn by numpy
    documents, settings     safe reading of untrusted JSON and YAML; validated settings that do not import torch
    hub                     files on the Hugging Face Hub, by their address
    machine                 files that appear whole or not at all, locks, worker processes; devices, ranks, threads
    progress, execution     progress of long tasks; workers, device and number type of a call
    cluster                 independent tasks, here or side by side on a Ray cluster

    io/                     file <-> Events, one file for each family of formats
    clustering/             batched K-Means++ (Alg. 1), in C and in torch; alternatives: scikit-learn and Faiss
    data/                   data sets as downloaded -> a store of columns -> the events that a network reads
    model/                  events -> tokens (Eq. 1-7) -> attention both ways (Eq. 8-10) -> class or hidden events
    baselines/              networks that ours is compared with, trained by the same command
    runtime/                exported networks: from a file to an answer without torch
    player/                 see a recording: the event player as one page, animations
    evaluation/             how good, how robust and how fast a network is; figures/: pictures of what it learnt
    training/               recipes, augmentation, objectives, runs, Lightning; the authors' checkpoints
    studies/                tables of the paper, networks compared on your data, and one page about a run
    exporting/              networks as files for a device, checked against torch: ONNX, OpenVINO, torch
    streaming/              live: a camera, UDP, a pipe or a recording being played -> continuous answers
    benchmark/              speed and memory, measured against alternatives on the same machine
    cli/                    one file for each verb: parse, call, print
    recipes/, experiments/  settings in YAML

Public names are loaded when they are first used, so that `event2vec --help` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from event2vec.benchmark import run_benchmark as run_benchmark
    from event2vec.cluster import Cluster as Cluster
    from event2vec.clustering import cluster_batch as cluster_batch
    from event2vec.clustering import cluster_events as cluster_events
    from event2vec.data.batches import collate as collate
    from event2vec.data.cache import cached_stores as cached_stores
    from event2vec.data.cache import remove_cached as remove_cached
    from event2vec.data.cut import cut_recording as cut_recording
    from event2vec.data.datasets import open_dataset as open_dataset
    from event2vec.data.datasets import open_splits as open_splits
    from event2vec.data.prepare import prepare as prepare
    from event2vec.data.sampling import Sampling as Sampling
    from event2vec.data.shard_writer import copy_store as copy_store
    from event2vec.data.store import EventStore as EventStore
    from event2vec.data.uniform import sample_uniform as sample_uniform
    from event2vec.data.windows import Windows as Windows
    from event2vec.errors import Event2VecError as Event2VecError
    from event2vec.errors import Event2VecWarning as Event2VecWarning
    from event2vec.evaluation.evaluate import Evaluation as Evaluation
    from event2vec.evaluation.evaluate import evaluate as evaluate
    from event2vec.evaluation.figures.clips import view_answers as view_answers
    from event2vec.evaluation.predict import predict as predict
    from event2vec.evaluation.timeline import Timeline as Timeline
    from event2vec.evaluation.timeline import timeline as timeline
    from event2vec.events import EventBatch as EventBatch
    from event2vec.events import Events as Events
    from event2vec.exporting import export as export
    from event2vec.io import read_events as read_events
    from event2vec.io import read_recording as read_recording
    from event2vec.io import write_events as write_events
    from event2vec.io.chunks import read_chunks as read_chunks
    from event2vec.model.attention import forgetting_attention as forgetting_attention
    from event2vec.model.checkpoint import load_model as load_model
    from event2vec.model.checkpoint import save_model as save_model
    from event2vec.model.classifier import Classifier as Classifier
    from event2vec.model.classifier import build_model as build_model
    from event2vec.model.config import ModelConfig as ModelConfig
    from event2vec.model.predictor import Prediction as Prediction
    from event2vec.player import show as show
    from event2vec.player import view as view
    from event2vec.progress import Progress as Progress
    from event2vec.progress import ShownProgress as ShownProgress
    from event2vec.sensor import Sensor as Sensor
    from event2vec.streaming import live as live
    from event2vec.streaming.camera_source import list_cameras as list_cameras
    from event2vec.studies.compare import compare as compare
    from event2vec.studies.compare import compare_sweep as compare_sweep
    from event2vec.studies.experiment import experiment as experiment
    from event2vec.studies.gallery import draw_gallery as draw_gallery
    from event2vec.studies.probe import probe as probe
    from event2vec.studies.report import report as report
    from event2vec.training.authors import import_checkpoint as import_checkpoint
    from event2vec.training.evaluations import evaluate_runs as evaluate_runs
    from event2vec.training.folds import cross_validate as cross_validate
    from event2vec.training.push import push as push
    from event2vec.training.recipe import Recipe as Recipe
    from event2vec.training.recipe import load_recipe as load_recipe
    from event2vec.training.run import Run as Run
    from event2vec.training.train import pretrain as pretrain
    from event2vec.training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "Event2VecError": "errors",
    "Event2VecWarning": "errors",
    "Sensor": "sensor",
    "Events": "events",
    "EventBatch": "events",
    "Progress": "progress",
    "ShownProgress": "progress",
    "Cluster": "cluster",
    "read_events": "io",
    "read_recording": "io",
    "read_chunks": "io.chunks",
    "write_events": "io",
    "cluster_events": "clustering",
    "cluster_batch": "clustering",
    "Windows": "data.windows",
    "cut_recording": "data.cut",
    "Sampling": "data.sampling",
    "sample_uniform": "data.uniform",
    "EventStore": "data.store",
    "open_dataset": "data.datasets",
    "open_splits": "data.datasets",
    "prepare": "data.prepare",
    "copy_store": "data.shard_writer",
    "collate": "data.batches",
    "cached_stores": "data.cache",
    "remove_cached": "data.cache",
    "forgetting_attention": "model.attention",
    "ModelConfig": "model.config",
    "Classifier": "model.classifier",
    "Prediction": "model.predictor",
    "build_model": "model.classifier",
    "save_model": "model.checkpoint",
    "load_model": "model.checkpoint",
    "view": "player",
    "show": "player",
    "Evaluation": "evaluation.evaluate",
    "evaluate": "evaluation.evaluate",
    "predict": "evaluation.predict",
    "Timeline": "evaluation.timeline",
    "timeline": "evaluation.timeline",
    "view_answers": "evaluation.figures.clips",
    "Recipe": "training.recipe",
    "load_recipe": "training.recipe",
    "train": "training.train",
    "pretrain": "training.train",
    "cross_validate": "training.folds",
    "Run": "training.run",
    "evaluate_runs": "training.evaluations",
    "import_checkpoint": "training.authors",
    "push": "training.push",
    "probe": "studies.probe",
    "report": "studies.report",
    "compare": "studies.compare",
    "compare_sweep": "studies.compare",
    "experiment": "studies.experiment",
    "draw_gallery": "studies.gallery",
    "export": "exporting",
    "live": "streaming",
    "list_cameras": "streaming.camera_source",
    "run_benchmark": "benchmark",
}
__all__ = list(_HOMES)  # in flow order


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'event2vec' has no attribute '{name}'")
    return getattr(import_module(f"event2vec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


import event2vec.baselines  # noqa: E402, F401  # registers its networks by name; loads neither numpy nor torch
