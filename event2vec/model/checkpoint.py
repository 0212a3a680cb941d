"""Networks on disk: a folder with safetensors and JSON.

A folder holds model.safetensors (weights), config.json (all else that is needed to build the network and to answer with
it) and README.md (a model card). Nothing in it can run code.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from event2vec.atomic import whole_folder
from event2vec.data.sampling import Sampling
from event2vec.documents import read_json
from event2vec.errors import Event2VecError, FileError
from event2vec.model.classifier import Classifier, build_model, count_parameters
from event2vec.model.config import ModelConfig
from event2vec.model.embedding import TabulatedSpatial
from event2vec.model.masked import MaskedEventModel, build_masked_model
from event2vec.names import check_class_names, shorten, shown
from event2vec.settings import build_settings

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
FORMAT = 1
KINDS = {Classifier: "classifier", MaskedEventModel: "masked"}


def save_model(model: Classifier | MaskedEventModel, folder: str | Path) -> None:
    """Write a network so that `load_model` builds it again. A network that is there already is replaced."""
    from safetensors.torch import save_file

    folder = Path(folder)
    check_text_path(folder)
    model = getattr(model, "_orig_mod", model)  # as torch.compile wraps it
    if isinstance(model.embed.spatial, TabulatedSpatial):
        raise Event2VecError("a network with a table is for answers alone; save the one that it was made from")
    others = {path.name for path in folder.iterdir()} - {WEIGHTS, CONFIG, CARD} if folder.exists() else set()
    if others:
        found = ", ".join(sorted(others)[:3])
        raise FileError(folder, f"holds other things ({found}), so it is not replaced. Name another folder.")
    facts = _describe(model)
    with whole_folder(folder, replace=True) as work:
        weights = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
        save_file(weights, work / WEIGHTS)
        (work / CONFIG).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (work / CARD).write_text(_card(model, facts), "utf-8")


def check_text_path(folder: Path) -> None:
    """safetensors and TensorBoard take no other names of folders; said before hours of training, not after."""
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError:
        raise FileError(folder, "is not text in UTF-8, which a network is kept under. Choose another name") from None


def _describe(model: Classifier | MaskedEventModel) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": FORMAT, "kind": KINDS[type(model)], "model": asdict(model.config)}
    if isinstance(model, Classifier):
        facts |= {"class_names": list(model.class_names), "sampling": asdict(model.sampling)}
    return facts


def _card(model: Classifier | MaskedEventModel, facts: Mapping[str, Any]) -> str:
    size = count_parameters(model)
    lines = [
        "# Event2Vec network",
        "",
        f"{size:,} parameters ({size * 4 / 2**20:.2f} MB) over events of a {model.config.sensor} camera.",
    ]
    if isinstance(model, Classifier):
        lines += [
            f"Tells {model.config.classes} classes apart: {', '.join(model.class_names)}.",
            "",
            "    event2vec predict <this folder> recording.aedat4",
        ]
    else:
        lines += [
            "Pre-trained by filling in hidden events; fine-tune it with `event2vec train RECIPE --init <this folder>`."
        ]
    return "\n".join([*lines, "", "```json", json.dumps(facts, indent=2, ensure_ascii=False), "```", ""])


def load_model(folder: str | Path) -> Classifier:
    """The classifier of a run or of a folder that `save_model` wrote, ready to answer."""
    model = load_any_model(folder)
    if not isinstance(model, Classifier):
        raise FileError(
            folder, "holds a pre-trained network without classes. Fine-tune it: event2vec train RECIPE --init"
        )
    return model


def load_any_model(folder: str | Path) -> Classifier | MaskedEventModel:
    """A classifier or a pre-trained network, from a run or from a folder that `save_model` wrote.

    The network is built without memory first, so that a description that its weights do not fit costs nothing.
    """
    folder = find_model(Path(folder))
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


def _build(facts: Mapping[str, Any], tensors: int) -> Classifier | MaskedEventModel:
    """The network that its facts describe, with weights of no value yet."""
    config: ModelConfig = build_settings(ModelConfig, facts.get("model"), "model")
    if config.blocks > tensors:
        raise ValueError(f"model.blocks is {config.blocks}, and there are {tensors} weights in all")
    if facts["kind"] == "masked":
        return build_masked_model(config)
    names = facts.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list of texts, got {shown(names)}")
    if len(names) != config.classes:
        raise ValueError(f"class_names has {len(names)} names and model.classes is {config.classes}")
    check_class_names(names)
    sampling: Sampling = build_settings(Sampling, facts.get("sampling"), "sampling")
    return build_model(config, class_names=names, sampling=sampling)


def find_model(folder: Path) -> Path:
    """The folder of the network itself: the one given, or `model` in a run."""
    for candidate in (folder, folder / "model"):
        if (candidate / WEIGHTS).is_file():
            return candidate
    if not folder.exists():
        raise FileError(folder, "does not exist, expected a run or a folder with a saved network")
    if (folder / "recipe.yaml").is_file():
        command = f"event2vec train --resume {shlex.quote(str(folder))}"
        raise FileError(folder, f"has no network yet. Resume its training: {command}")
    raise FileError(folder, f"holds no network, expected {WEIGHTS} in it or in its folder 'model'")


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileError(path, "is missing; it says how the network beside it is built")
    facts = read_json(path)
    if facts.get("kind") not in KINDS.values():
        raise FileError(path, f"does not describe a network: 'kind' must be one of {', '.join(KINDS.values())}")
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
    """From the file's header alone."""
    with _open_weights(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _check_shapes(path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Say which weights do not fit the network."""
    check_names(path, wanted.keys() - found.keys(), found.keys() - wanted.keys())
    for name, expected in wanted.items():
        if found[name] != expected:
            raise FileError(path, f"{name} has shape {found[name]}, the network needs {expected}. Check its sizes.")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """All as float32, in memory of their own; half precision is widened, as it always was."""
    weights = {}
    with _open_weights(path) as file:
        for name in file.keys():  # noqa: SIM118
            weight = file.get_tensor(name)
            if not weight.is_floating_point():
                raise FileError(
                    path, f"{name} is of type {weight.dtype}, expected floating-point numbers. Save the network again."
                )
            weights[name] = weight.to(torch.float32, copy=True)
            if not all(end.isfinite() for end in weights[name].aminmax()):  # in one pass; NaN is both ends
                raise FileError(
                    path, f"{name} has values that are not finite numbers. Train or copy the network again."
                )
    return weights


def check_names(path: Path, missing: set[str], left_over: set[str]) -> None:
    if not (missing or left_over):
        return
    problems = [f"{kind} {_first(names)}" for kind, names in (("lacks", missing), ("leaves over", left_over)) if names]
    raise FileError(path, f"does not fit the network: {' and '.join(problems)}. Check the model's settings.")


def _first(names: set[str], count: int = 3) -> str:
    listed = ", ".join(shorten(name) for name in sorted(names)[:count])
    return listed if len(names) <= count else f"{listed} and {len(names) - count} more"
