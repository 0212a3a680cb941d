"""Saved networks: a folder with safetensors and JSON.

A folder holds model.safetensors (weights), config.json (everything else needed to build and use the network) and
README.md (a model card). Nothing in it can run code.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from event2vec.documents import read_json
from event2vec.errors import Event2VecError, FileError
from event2vec.machine.atomic import whole_folder
from event2vec.model.classifier import Classifier, Event2VecClassifier, build_model, count_parameters
from event2vec.model.config import ModelConfig
from event2vec.model.description import Description, read_config
from event2vec.model.embedding import TabulatedSpatial
from event2vec.model.masked import MaskedEventModel, MaskedModel, build_masked_model
from event2vec.model.network_folder import CARD, CONFIG, WEIGHTS, check_text_path, find_model, open_folder
from event2vec.names import shorten, shown

FORMAT = 1
KINDS = ("classifier", "masked")


def save_model(model: Classifier | MaskedModel, folder: str | Path) -> None:
    """Save a network so that `load_model` can load it.

        save_model(model, "networks/mine")

    The folder holds safetensors and JSON. A network already in it is replaced.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    check_text_path(folder)
    model = getattr(model, "_orig_mod", model)  # as torch.compile wraps it
    if any(isinstance(part, TabulatedSpatial) for part in model.modules()):
        raise Event2VecError("a network with a table is for inference only; save the network that it was made from")
    others = {path.name for path in folder.iterdir()} - {WEIGHTS, CONFIG, CARD} if folder.exists() else set()
    if others:
        found = ", ".join(sorted(others)[:3])
        raise FileError(folder, f"holds other files ({found}), so it is not replaced. Choose another folder.")
    facts = _describe(model)
    with whole_folder(folder, replace=True) as work:
        weights = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
        save_file(weights, work / WEIGHTS)
        (work / CONFIG).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (work / CARD).write_text(_card(model, facts), "utf-8")


def _describe(model: Classifier | MaskedModel) -> dict[str, Any]:
    kind = {"format": FORMAT, "kind": KINDS[isinstance(model, MaskedModel)]}
    if isinstance(model, Classifier):
        return kind | Description.of(model).facts()
    return kind | {"model": asdict(model.config)}


def _card(model: Classifier | MaskedModel, facts: Mapping[str, Any]) -> str:
    size = count_parameters(model)
    lines = [
        "# Event2Vec network",
        "",
        f"{size:,} parameters ({size * 4 / 2**20:.2f} MB) for events from a {model.config.sensor} camera.",
    ]
    if isinstance(model, Classifier):
        lines += [
            f"Its {model.config.classes} classes: {', '.join(model.class_names)}.",
            *([f"Trained on {model.trained_on.summary(model.sampling)}."] if model.trained_on else []),
            "",
            "    event2vec predict <this folder> recording.aedat4",
        ]
    else:
        lines += [
            "Pre-trained by reconstructing hidden events. Fine-tune it: `event2vec train RECIPE --init <this folder>`."
        ]
    return "\n".join([*lines, "", "```json", json.dumps(facts, indent=2, ensure_ascii=False), "```", ""])


def load_model(folder: str | PathLike[str]) -> Classifier:
    """Load the classifier of a run, of a folder that `save_model` wrote, or of the Hugging Face Hub.

        load_model("runs/my_recordings").predict("clip.aedat4").name
        load_model("hf://owner/name@v1")  # @ and a branch, a tag or a commit may be left out

    It is in evaluation mode. Nothing that is loaded can run code.
    """
    model = load_any_model(folder)
    if not isinstance(model, Classifier):
        raise FileError(
            os.fspath(folder),
            "holds a pre-trained network without classes. Fine-tune it: event2vec train RECIPE --init",
        )
    return model


def load_any_model(folder: str | PathLike[str]) -> Classifier | MaskedModel:
    """Load a classifier or a pre-trained network, from a run or from a folder that `save_model` wrote.

    The network is first built without memory, so that a description that does not fit the weights costs nothing.
    """
    folder = find_model(open_folder(folder))
    facts = _read_config(folder / CONFIG)
    path = folder / WEIGHTS
    shapes = _read_shapes(path)
    try:
        with torch.device("meta"):
            model = _build(facts, len(shapes))
    except (Event2VecError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise FileError(folder / CONFIG, f"does not describe a network: {shorten(str(error))}") from None
    _check_shapes(path, shapes, {name: tuple(weight.shape) for name, weight in model.state_dict().items()})
    model.load_state_dict(_read_weights(path), assign=True)
    return model.eval()


def load_event2vec(folder: str | PathLike[str]) -> Event2VecClassifier | MaskedEventModel:
    """Load a classifier or a pre-trained network of ours, which has tokens."""
    model = load_any_model(folder)
    if isinstance(model, Event2VecClassifier | MaskedEventModel):
        return model
    raise FileError(
        os.fspath(folder), f"holds a {model.config.network} network, which has no tokens; expected event2vec"
    )


def _build(facts: Mapping[str, Any], tensors: int) -> Classifier | MaskedModel:
    """The network that config.json describes, with weights not loaded yet."""
    config = read_config(facts)
    if isinstance(config, ModelConfig) and config.blocks > tensors:
        raise ValueError(f"model.blocks is {config.blocks}, but there are only {tensors} weights")
    if facts["kind"] == "masked":
        return build_masked_model(config)
    described = Description.from_facts(facts)
    model = build_model(config, class_names=described.class_names, sampling=described.sampling)
    described.hand_to(model)
    return model


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileError(path, "is missing; it describes the network in this folder")
    facts = read_json(path)
    if facts.get("kind") not in KINDS:
        raise FileError(path, f"does not describe a network: 'kind' must be one of {', '.join(KINDS)}")
    if facts.get("format") != FORMAT:
        raise FileError(
            path, f"has format {shown(facts.get('format'))}, this version reads {FORMAT}. Update event2vec."
        )
    return facts


@contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        reason = shorten(str(error))
        raise FileError(path, f"cannot be read as safetensors: {reason}. Copy the file again.") from None


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """From the file's header only."""
    with _open_weights(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _check_shapes(path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Raise an error that names the weights that do not fit the network."""
    check_names(path, wanted.keys() - found.keys(), found.keys() - wanted.keys())
    for name, expected in wanted.items():
        if found[name] != expected:
            raise FileError(path, f"{name} has shape {found[name]}, the network needs {expected}. Check its sizes.")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """All weights as float32, copied from the file; half precision is widened."""
    weights = {}
    with _open_weights(path) as file:
        for name in file.keys():  # noqa: SIM118
            weight = file.get_tensor(name)
            if not weight.is_floating_point():
                raise FileError(
                    path, f"{name} is of type {weight.dtype}, expected floating-point numbers. Save the network again."
                )
            weights[name] = weight.to(torch.float32, copy=True)
            if not all(end.isfinite() for end in weights[name].aminmax()):  # in one pass; NaN becomes both ends
                raise FileError(
                    path, f"{name} has values that are not finite numbers. Train or copy the network again."
                )
    return weights


def check_names(path: Path, missing: set[str], left_over: set[str]) -> None:
    if not (missing or left_over):
        return
    problems = [f"{kind} {_first(names)}" for kind, names in (("missing", missing), ("unexpected", left_over)) if names]
    raise FileError(path, f"does not fit the network: {' and '.join(problems)}. Check the model's settings.")


def _first(names: set[str], count: int = 3) -> str:
    listed = ", ".join(shorten(name) for name in sorted(names)[:count])
    return listed if len(names) <= count else f"{listed} and {len(names) - count} more"
