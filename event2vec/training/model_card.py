"""The page of a network that is shared: what it is for, how good it is and on what, and how to use it.

Every figure is one that the run has measured. Nothing on it names a file or a folder of the machine it was made on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import yaml

from event2vec.documents import read_json
from event2vec.errors import FileError
from event2vec.model.classifier import Classifier, count_parameters
from event2vec.model.masked import MaskedModel
from event2vec.names import counted, printable
from event2vec.training.run import Run

PAPER = "https://arxiv.org/abs/2504.15371"
TAGS = ["event2vec", "event-camera", "neuromorphic"]
SHOWN = ("recordings", "per_class", "per_class_interval", "calibration")  # besides accuracy and interval
Facts = Mapping[str, Any]


def model_card(
    run: Run, model: Classifier | MaskedModel, repo: str, license_name: str | None, pictures: Mapping[str, str]
) -> str:
    """Markdown that begins with the metadata that the Hub reads. `pictures` are titles by the name of their file."""
    found = test_results(run) if isinstance(model, Classifier) else None
    parts = [
        f"---\n{yaml.safe_dump(_metadata(run, repo, license_name, found), sort_keys=False)}---",
        f"# {_plain(repo.partition('/')[2])}",
        _introduction(model),
        *(_classes(model, repo) if isinstance(model, Classifier) else _pretrained(repo)),
        *(_accuracy(found) if found else []),
        *(f"![{title}]({file})" for file, title in pictures.items()),
        *(_training(run) if run.is_started else []),
    ]
    return "\n\n".join(parts) + "\n"


def test_results(run: Run) -> dict[str, Any] | None:
    """What was measured on the test part when the training ended, or later by `evaluate`; None: nothing was."""
    path = run.result("test")
    if not (run.is_started and path.is_file()):
        return None
    found = read_json(path)
    shares = [found.get("accuracy"), *(found["interval"] if isinstance(found.get("interval"), list) else [])]
    if len(shares) != 3 or not all(isinstance(share, float | int) for share in shares):
        raise FileError(path, "is damaged, expected accuracy and interval. Run 'event2vec evaluate' again")
    if missing := [name for name in SHOWN if name not in found]:
        raise FileError(path, f"has no {missing[0]}: an older version wrote it. Run 'event2vec evaluate' again")
    return found


def _metadata(run: Run, repo: str, license_name: str | None, found: Facts | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"library_name": "event2vec", "tags": TAGS}
    if license_name:
        facts["license"] = license_name
    if found:
        dataset = run.recipe.data.dataset
        result = {
            "task": {"type": "event-classification", "name": "Classification of event-camera recordings"},
            "dataset": {"type": dataset, "name": dataset},
            "metrics": [{"type": "accuracy", "value": round(found["accuracy"], 4), "name": "accuracy"}],
        }
        facts["model-index"] = [{"name": repo.partition("/")[2], "results": [result]}]
    return facts


def _introduction(model: Classifier | MaskedModel) -> str:
    size = count_parameters(model)
    return (
        f"A network for recordings of event cameras, {size:,} parameters ({size * 4 / 2**20:.2f} MB), for a "
        f"{model.config.sensor} sensor; recordings of others are scaled to it. Made with Event2Vec, software for the "
        f"method of [Event2Vec (ICML 2026)]({PAPER})."
    )


def _classes(model: Classifier, repo: str) -> Iterator[str]:
    yield f"It reads {model.reads} of a recording, and knows {model.config.classes} classes:"
    yield ", ".join(_plain(name) for name in model.class_names) + "."
    if model.trained_on:
        yield f"It was trained on {model.trained_on.summary(model.sampling)}. Recordings far from these are named."
    yield "## How to use it"
    yield f"    pip install 'event2vec[hub]'\n    event2vec predict hf://{repo} recording.aedat4"
    yield (
        f'```python\nfrom event2vec import load_model\n\nmodel = load_model("hf://{repo}")\n'
        'answer = model.predict("recording.aedat4", min_confidence=0.6)\n'
        "answer.name, answer.confidence, answer.scores\n```"
    )
    yield "The files are safetensors and JSON; nothing in them can run code."


def _pretrained(repo: str) -> Iterator[str]:
    yield "It was pre-trained by reconstructing hidden events, and has no classes. Fine-tune it:"
    yield f"    pip install 'event2vec[hub]'\n    event2vec train folder --data my_recordings/ --init hf://{repo}"
    yield "The files are safetensors and JSON; nothing in them can run code."


def _accuracy(found: Facts) -> Iterator[str]:
    low, high = found["interval"]
    yield "## How good it is"
    yield (
        f"**{100 * found['accuracy']:.1f} %** of {found['recordings']:,} test recordings are recognised (95 % interval "
        f"{100 * low:.1f} to {100 * high:.1f} %, Wilson). They had no part in the training or in any choice."
    )
    rows = ["| class | correct | 95 % interval |", "|---|---|---|"]
    for name, share in found["per_class"].items():
        if share is not None:
            low, high = found["per_class_interval"][name]
            rows.append(f"| {_plain(name)} | {100 * share:.1f} % | {100 * low:.1f} to {100 * high:.1f} % |")
    yield "\n".join(rows)
    trust = found["calibration"]
    fitted = f"with the temperature {trust['temperature']:.2f} that was fitted on validation recordings"
    yield (
        f"Calibration error {100 * trust['after']['error']:.1f} % (15 bins), "
        f"{fitted if trust['temperature'] != 1 else 'without a fitted temperature'}; mean confidence "
        f"{100 * trust['after']['confidence']:.1f} %, Brier score {trust['after']['brier']:.3f}."
    )


def _training(run: Run) -> Iterator[str]:
    """The recipe, without the name of a file with labels."""
    recipe = run.recipe
    recipe = replace(recipe, data=replace(recipe.data, labels=""))
    yield "## How it was trained"
    epochs = counted(len(run.metrics), "epoch")
    yield f"Recipe `{_plain(recipe.name)}`, {epochs}, seed {recipe.training.seed}; all settings:"
    yield f"```yaml\n{recipe.to_yaml().strip()}\n```"


def _plain(name: str) -> str:
    """A name that people chose, as text in Markdown."""
    return escape(printable(name), quote=False).replace("|", "\\|").replace("`", "'")
