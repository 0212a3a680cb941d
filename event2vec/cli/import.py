"""Convert a checkpoint published by the authors into a network folder, as training leaves one.

The recipe says what a checkpoint does not: the sensor, the names of classes, how many events the network reads. Names
of weights, the order of classes and the way rho enters follow the authors' released code.
"""

import json
import shlex
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from event2vec.cli.options import add_json_option
from event2vec.cli.printing import say

if TYPE_CHECKING:
    from event2vec.training.authors import Imported

SHOWN = 5  # names of classes


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the authors' file, such as dvs_gesture.ckpt")
    parser.add_argument(
        "--recipe",
        required=True,
        metavar="R",
        help="what it was trained for: dvs_gesture, asl_dvs, dvs_lip_pretrain, dvs_lip, dvs_lip_random; or a .yaml",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the network goes")
    parser.add_argument(
        "--classes", metavar="STORE", help="a prepared store that has the names of the classes; needed for DVS-Lip"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a network that is in FOLDER")
    add_json_option(parser)


def run(options: Namespace) -> None:
    from pathlib import Path

    from event2vec.data.store import EventStore
    from event2vec.errors import FileError
    from event2vec.model.checkpoint import save_model
    from event2vec.training.authors import import_network
    from event2vec.training.recipe import load_recipe

    out = Path(options.out)
    if out.exists() and not options.overwrite:
        raise FileError(out, "exists already. Choose another --out or add --overwrite")
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
    kind = f"{len(classes)} classes: {', '.join(classes[:SHOWN])}" if classes else "pre-trained, without classes"
    more = ", ..." if len(classes) > SHOWN else ""
    say(f"{out}: {facts['parameters']:,} parameters, {kind}{more}")
    for assumption in facts["assumed"]:
        say(f"  assumed: {assumption}")
    named = shlex.quote(out)
    follow = f"predict {named} RECORDING" if classes else f"train RECIPE --init {named} --model.intensity linear"
    say(f"Use it with: event2vec {follow}")
