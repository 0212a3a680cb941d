"""Convert the authors' published checkpoints to our networks: other names, another class order, linear rho.

They are Lightning files whose weight names begin with `classifier.`. A pre-trained network has a mask token, and its
`heads` are a decoder; in a classifier they are one linear layer. A checkpoint does not store the sensor, the class
names or how many events its network reads; a recipe does.
"""

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from event2vec.data.datasets import asl_dvs, dvs_gesture
from event2vec.data.sampling import Sampling
from event2vec.errors import Event2VecError, FileError
from event2vec.hub import fetch_file
from event2vec.model.checkpoint import check_names
from event2vec.model.classifier import Classifier, build_model
from event2vec.model.config import ModelConfig
from event2vec.model.masked import MaskedEventModel, build_masked_model
from event2vec.names import excerpt, shorten
from event2vec.training.recipe import Recipe

PREFIX = "classifier."
MASK_TOKEN = f"{PREFIX}mask_token"
NEEDED = {
    "shared": True,
    "spatial": "parametric",
    "temporal": "convolution",
    "attention": "forgetting",
    "neighbourhood": 0,
    "relative": False,
}
CLASS_NAMES = {"dvs_gesture": dvs_gesture.CLASSES, "asl_dvs": asl_dvs.CLASSES}
# Their outputs follow the folder names, sorted as text. DVS Gesture's are called 0 to 10, so 10 comes after 1.
CLASS_ORDER = {"dvs_gesture": tuple(sorted(range(len(dvs_gesture.CLASSES)), key=str))}

Weights = dict[str, Tensor]
Sources = dict[str, tuple[str, ...]]  # for each of our weights, the names of the authors' weights that it is made of


def import_checkpoint(
    path: str | Path,
    config: ModelConfig,
    *,
    class_names: Sequence[str] = (),
    sampling: Sampling | None = None,
    class_order: Sequence[int] = (),
) -> Classifier:
    """Import the classifier of a checkpoint that the authors published, built from `config`, with linear intensity.

        model = import_checkpoint("asl_dvs.ckpt", load_recipe("asl_dvs").model)

    `class_order` gives our class number for each of their outputs, as in `CLASS_ORDER` for DVS Gesture; without it the
    outputs keep their order. A checkpoint does not store how many events its network reads from a recording: 4,096
    for DVS Gesture, 1,024 for the others. `import_network` takes all of this from a recipe. `path` may be an address on
    the Hugging Face Hub, hf://OWNER/NAME/FILE.
    """
    path = fetch_file(path)
    model = _build(path, _read(path), config, class_names, sampling, class_order)
    if not isinstance(model, Classifier):
        raise FileError(path, "holds a pre-trained network without classes; use import_masked_checkpoint")
    return model


def import_masked_checkpoint(path: str | Path, config: ModelConfig) -> MaskedEventModel:
    """Import the network of a checkpoint that the authors pre-trained (App. A.5), with linear intensity."""
    path = fetch_file(path)
    model = _build(path, _read(path), config)
    if not isinstance(model, MaskedEventModel):
        raise FileError(path, "holds a classifier; use import_checkpoint")
    return model


@dataclass(frozen=True)
class Imported:
    """A network, and what was assumed because its checkpoint does not store it."""

    model: Classifier | MaskedEventModel
    assumed: tuple[str, ...]


def import_network(path: str | Path, recipe: Recipe, class_names: Sequence[str] = ()) -> Imported:
    """Import any checkpoint of the authors, with everything that it does not store from the recipe for its data set.

    `class_names` are needed for data sets whose classes have no fixed names, such as DVS-Lip.
    """
    path = fetch_file(path)
    names, order = _class_names(recipe, class_names), CLASS_ORDER.get(recipe.data.dataset, ())
    if not isinstance(recipe.model, ModelConfig):
        raise Event2VecError(f"recipe {recipe.name} is for {recipe.model.network}; the authors' networks are event2vec")
    model = _build(path, _read(path), recipe.model, names, recipe.sampling, order)
    return Imported(model, tuple(_assumptions(model, recipe, names)))


def _class_names(recipe: Recipe, given: Sequence[str]) -> tuple[str, ...]:
    known = CLASS_NAMES.get(recipe.data.dataset, ())
    names = tuple(given) or known
    if known and names != known:
        raise Event2VecError(f"{recipe.data.dataset} has the classes {known[0]}, {known[1]}, ..., got {names[0]}, ...")
    if names and len(names) != recipe.model.classes:
        raise Event2VecError(f"recipe {recipe.name} has {recipe.model.classes} classes, got {len(names)} names")
    return names


def _assumptions(model: Classifier | MaskedEventModel, recipe: Recipe, names: Sequence[str]) -> Iterator[str]:
    yield f"a sensor of {recipe.model.sensor}, from recipe {recipe.name}"
    yield "tokens multiplied by rho, as in the authors' code (model.intensity: linear)"
    if isinstance(model, MaskedEventModel):
        yield "a decoder with outputs p, y, x, as in the authors' code; reordered to x, y, p"
        return
    what = "random events" if recipe.sampling.method == "random" else "clusters"
    yield f"{recipe.sampling.length:,} {what} of each recording, from recipe {recipe.name}"
    if order := CLASS_ORDER.get(recipe.data.dataset):
        yield f"outputs in the order of folders {', '.join(map(str, order[:4]))}, ...; reordered to that of our classes"
    else:
        yield "outputs in the order of the class names, sorted as text"
    if not names:
        yield "classes without names, called by their numbers; a store of the data set has the names"
    if recipe.data.dataset == "asl_dvs":
        yield "training on SpikingJelly's npz files, which are mirrored; other recordings look new to the network"


def _build(
    path: Path,
    theirs: Weights,
    config: ModelConfig,
    class_names: Sequence[str] = (),
    sampling: Sampling | None = None,
    class_order: Sequence[int] = (),
) -> Classifier | MaskedEventModel:
    config = _check_config(path, theirs, config)
    if MASK_TOKEN in theirs:
        masked = build_masked_model(config)
        weights = _collect(path, theirs, masked, _sources(config) | DECODER)
        weights[ANSWERS] = weights[ANSWERS].flip(0)  # theirs are p, y, x
        masked.load_state_dict(weights)
        return masked.eval()
    model = build_model(config, class_names=class_names, sampling=sampling)
    weights = _collect(path, theirs, model, _sources(config) | CLASS_HEAD)
    places = _places(class_order or range(config.classes), config.classes)
    model.load_state_dict(weights | {name: weights[name][places] for name in CLASS_HEAD})
    return model.eval()


def _read(path: Path) -> Weights:
    """The named weights of a checkpoint, without running code that it may hold."""
    if not path.is_file():
        raise FileError(path, "is not a file" if path.exists() else "does not exist")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = "holds more than weights, which could run code when loaded, or is damaged; it was not loaded"
        raise FileError(path, f"{reason}. Save its state_dict alone with torch.save.") from error
    except Exception as error:  # damage raises many kinds of errors, from assertions to missing attributes
        raise FileError(
            path, f"is not a checkpoint that torch can read: {excerpt(error, 160) or type(error).__name__}"
        ) from error
    weights = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        raise FileError(path, "holds no named weights, expected a Lightning checkpoint or its state_dict")
    for name, weight in weights.items():
        if not (isinstance(weight, Tensor) and weight.layout == torch.strided and weight.is_floating_point()):
            raise FileError(path, f"holds no named weights: {shorten(name)} is not an array of numbers")
        if not bool(weight.isfinite().all()):
            raise FileError(path, f"{shorten(name)} has values that are not finite. Download the file again.")
    return weights


def _check_config(path: Path, theirs: Weights, config: ModelConfig) -> ModelConfig:
    """The settings with the authors' intensity; an error if the network in the file has other sizes or parts."""
    for name, needed in NEEDED.items():
        if getattr(config, name) != needed:
            raise Event2VecError(f"the authors' checkpoints need model.{name} = {needed}, got {getattr(config, name)}")
    found = _sizes(path, theirs)
    wrong = [name for name in found if found[name] != getattr(config, name)]
    if wrong:
        has = ", ".join(f"{name} {found[name]}" for name in wrong)
        expected = ", ".join(f"{name} {getattr(config, name)}" for name in wrong)
        raise FileError(
            path, f"holds a network with {has}, expected {expected}. Choose the recipe that it was trained with."
        )
    return replace(config, intensity="linear")


def _sizes(path: Path, theirs: Weights) -> dict[str, Any]:
    """The settings of the network in a checkpoint, as far as its weights reveal them."""
    widened = [name for name in theirs if re.fullmatch(rf"{PREFIX}backbone_net\..*\.ffn\.linear1\.weight", name)]
    embedded, head = f"{PREFIX}embed_net.embed.6.weight", f"{PREFIX}heads.weight"
    gates = [name.replace("ffn.linear1.weight", "attention.attention.f_proj.bias") for name in widened[:1]]
    needed = {embedded, *(gates or [f"{PREFIX}backbone_net"])} | (set() if MASK_TOKEN in theirs else {head})
    if missing := needed - theirs.keys():
        raise FileError(path, f"holds no network of the authors: {sorted(missing)[0]} is missing")
    sizes = {
        "dim": len(theirs[embedded]),
        "hidden": len(theirs[widened[0]]),
        "heads": len(theirs[gates[0]]),
        "blocks": len(widened),
        "pooling": not widened[0].startswith(f"{PREFIX}backbone_net.layers."),
    }
    return sizes if MASK_TOKEN in theirs else sizes | {"classes": len(theirs[head])}


def _collect(path: Path, theirs: Weights, model: Classifier | MaskedEventModel, sources: Sources) -> Weights:
    """Build each of our weights from theirs; all of theirs must be used."""
    sources = {ours: tuple(PREFIX + name for name in names) for ours, names in sources.items()}
    used = {name for names in sources.values() for name in names}
    check_names(path, used - theirs.keys(), theirs.keys() - used)
    weights = {}
    for ours, weight in model.state_dict().items():
        try:
            weights[ours] = torch.cat([theirs[name] for name in sources[ours]]).view(weight.shape)
        except RuntimeError:
            found = ", ".join(f"{name} of shape {tuple(theirs[name].shape)}" for name in sources[ours])
            raise FileError(path, f"has {found}, the network needs {tuple(weight.shape)}. Check its sizes.") from None
    return weights


def _places(class_order: Sequence[int], classes: int) -> list[int]:
    """For each of our classes, the index of their output."""
    if sorted(class_order) != list(range(classes)):
        raise Event2VecError(f"class_order must have each number from 0 to {classes - 1} once, got {list(class_order)}")
    return [list(class_order).index(label) for label in range(classes)]


CLASS_HEAD: Sources = {f"head.linear.{kind}": (f"heads.{kind}",) for kind in ("weight", "bias")}
DECODER: Sources = {
    "mask_token": ("mask_token",),
    **{f"decoder.layers.{number}.weight": (f"heads.{3 * number}.weight",) for number in range(3)},
    **{
        f"decoder.norms.{number}.{kind}": (f"heads.{3 * number + 1}.{kind}",)
        for number in range(2)
        for kind in ("weight", "bias")
    },
}


ANSWERS = "decoder.layers.2.weight"


def _sources(config: ModelConfig) -> Sources:
    """The authors' weights for the embedding and the backbone."""
    names: Sources = {}
    for number, (linear, linear_norm, convolution, convolution_norm) in enumerate(
        ((0, 1, 0, 2), (3, 4, 5, 7), (6, 7, 10, 12))
    ):
        names[f"embed.spatial.layers.{number}.weight"] = (f"embed_net.embed.{linear}.weight",)
        names[f"embed.temporal.kernels.{number}"] = (f"tpe.conv.{convolution}.weight",)
        for kind in ("weight", "bias"):
            names[f"embed.spatial.norms.{number}.{kind}"] = (f"embed_net.embed.{linear_norm}.{kind}",)
            names[f"embed.temporal.norms.{number}.{kind}"] = (f"tpe.conv.{convolution_norm}.{kind}",)
    for block in range(config.blocks):
        ours = f"backbone.stages.{block}.blocks.0" if config.pooling else f"backbone.stages.0.blocks.{block}"
        theirs = f"backbone_net.{block}.layers.0" if config.pooling else f"backbone_net.layers.{block}"
        names |= _block_sources(ours, theirs)
    for stage in range(config.blocks if config.pooling else 1):
        theirs = f"backbone_net.{stage}.norm" if config.pooling else "backbone_net.norm"
        names |= {f"backbone.stages.{stage}.norm.{kind}": (f"{theirs}.{kind}",) for kind in ("weight", "bias")}
    return names


def _block_sources(ours: str, theirs: str) -> Sources:
    attention, direction = f"{theirs}.attention.attention", f"{ours}.attention.directions.0"
    names: Sources = {
        f"{direction}.project_all.weight": tuple(f"{attention}.{letter}_proj.weight" for letter in "qkvf"),
        f"{direction}.forget_bias": (f"{attention}.f_proj.bias",),
        f"{direction}.query_norm": (f"{attention}.q_norm.weight",),
        f"{direction}.key_norm": (f"{attention}.k_norm.weight",),
        f"{ours}.attention.output.weight": (f"{attention}.o_proj.weight",),
        f"{ours}.widen.weight": (f"{theirs}.ffn.linear1.weight",),
        f"{ours}.narrow.weight": (f"{theirs}.ffn.linear2.weight",),
    }
    for norm, number in (("attention_norm", 1), ("feed_norm", 2)):
        names |= {f"{ours}.{norm}.{kind}": (f"{theirs}.norm{number}.{kind}",) for kind in ("weight", "bias")}
    return names
