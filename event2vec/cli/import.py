"""Convert a checkpoint published by the authors into a network folder like that of a training.

    event2vec import dvs_gesture.ckpt --recipe dvs_gesture --out networks/gesture
    event2vec import hf://fangwei123456/event2vector_checkpoints/FILE --recipe dvs_gesture --out networks/gesture

The recipe provides what a checkpoint does not: the sensor, the class names, how many events the network reads. Weight
names, class order and the use of rho follow the authors' released code.
"""

import json
import shlex
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import add_json_option, check_free
from event2vec.cli.parser import existing, existing_or_address
from event2vec.cli.printing import say
from event2vec.names import counted
from event2vec.training.recipe import load_recipe

if TYPE_CHECKING:
    from event2vec.training.authors import Imported

PUBLISHED = ("dvs_gesture", "asl_dvs", "dvs_lip", "dvs_lip_pretrain")  # by the authors, as checkpoints
SHOWN = 5  # names of classes


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        type=existing_or_address("a checkpoint"),
        help="the authors' file, such as dvs_gesture.ckpt, or hf://OWNER/NAME/FILE",
    )
    parser.add_argument(
        "--recipe",
        required=True,
        metavar="RECIPE",
        help=f"what it was trained for: {', '.join(PUBLISHED)}; or a file that ends in .yaml",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the network goes")
    parser.add_argument(
        "--classes",
        metavar="STORE",
        type=existing("a prepared store"),
        help="a prepared store that has the names of the classes; needed for DVS-Lip",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a network in FOLDER")
    add_json_option(parser)


def check(options: Namespace) -> None:
    check_free(options.out, options.overwrite, "--out")
    load_recipe(options.recipe)


def run(options: Namespace) -> None:
    from pathlib import Path

    from event2vec.data.store import EventStore
    from event2vec.model.checkpoint import save_model
    from event2vec.training.authors import import_network

    out = Path(options.out)
    names = EventStore.open(options.classes).classes if options.classes else ()
    imported = import_network(options.checkpoint, load_recipe(options.recipe), names)
    save_model(imported.model, out)
    facts = {"out": str(out), **_describe(imported)}
    print(json.dumps(facts, indent=2)) if options.json else _summarise(facts)


def _describe(imported: "Imported") -> dict[str, Any]:
    from dataclasses import asdict

    from event2vec.model.classifier import Classifier, count_parameters

    model = imported.model
    facts: dict[str, Any] = {"kind": "masked", "parameters": count_parameters(model), "classes": []}
    if isinstance(model, Classifier):
        facts |= {"kind": "classifier", "classes": list(model.class_names), "sampling": asdict(model.sampling)}
    return facts | {"model": asdict(model.config), "assumed": list(imported.assumed)}


def _summarise(facts: dict[str, Any]) -> None:
    out, classes = facts["out"], facts["classes"]
    named = f"{counted(len(classes), 'class', 'classes')}: {', '.join(classes[:SHOWN])}"
    kind = named if classes else "pre-trained, without classes"
    more = ", ..." if len(classes) > SHOWN else ""
    say(f"{out}: {facts['parameters']:,} parameters, {kind}{more}")
    for assumption in facts["assumed"]:
        say(f"  assumed: {assumption}")
    folder = shlex.quote(out)
    follow = f"predict {folder} RECORDING" if classes else f"train RECIPE --init {folder} --model.intensity linear"
    say(f"Use it with: event2vec {follow}")
