"""Remake the golden files: python tests/golden/make.py [losses] [recordings] [network]

losses.json      what a small training on the built-in digits loses at each step, to the bit, and the kind of machine
recordings/      two digits before a simulated camera, in every format that tests/encoders.py writes
recordings.json  what was written into each of them
network/         a small network that tells the two digits apart
logits.json      what it answers about each recording

Commit what changed only if a result was meant to change, and say why in the commit. `--show` prints the losses and
writes nothing; the test calls it in a process of its own, so that no other test's settings reach it.
"""

import csv
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))  # encoders, as pytest finds it

# One thread: torch splits sums over threads.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
TRAIN, TEST, CLUSTERS = 24, 12, 48  # recordings to learn from, others to validate on, clusters of each
CASES: list[tuple[Literal["train", "pretrain"], Literal["random", "clusters"]]] = [
    ("train", "random"),
    ("train", "clusters"),
    ("pretrain", "random"),
    ("pretrain", "clusters"),
]


def machine_kind() -> dict[str, str]:
    """What the last bits of a sum depend on: matrix products are split up as the CPU's vectors and caches suggest."""
    import torch

    return {
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": _cpu_model(),
    }


def compiler() -> str:
    """What compiled attention was compiled with, as its file says: another may add numbers in another order."""
    from event2vec.model import _compiled_attention  # type: ignore[attr-defined]

    found = re.search(rb"(?:GCC|clang version)[ :][^\x00]{1,80}", Path(_compiled_attention.__file__).read_bytes())
    return found[0].decode("ascii", "replace") if found else "unknown"


def _cpu_model() -> str:
    """Vendor, family and model; a model's name alone may be that of many."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().partition("\n\n")[0].splitlines() if path.exists() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    found = [facts[name] for name in ("vendor_id", "cpu family", "model") if name in facts]
    return " ".join(found) or platform.processor()


def digest(events: list[Any]) -> str:
    """Of all columns of these recordings."""
    found = hashlib.sha256()
    for recording in events:
        for name in ("x", "y", "t", "p", "rho"):
            found.update(getattr(recording, name).contiguous().numpy().tobytes())
    return found.hexdigest()


def measure_losses() -> dict[str, Any]:
    """The golden file's content as this machine has it."""
    from event2vec import cluster_events, open_dataset

    parts = [(open_dataset("digits", None, split), count) for split, count in (("train", TRAIN), ("test", TEST))]
    recordings = [part[index] for part, count in parts for index in range(count)]
    clusters = [(cluster_events(events, CLUSTERS), label) for events, label in recordings]
    data = {"random": recordings, "clusters": clusters}
    return {
        "machine": machine_kind(),
        "compiler": compiler(),
        "events": {name: digest([events for events, _ in found]) for name, found in data.items()},
        "cases": {
            f"{task} {method} {kind}": _train(task, method, data[method], kind)
            for kind in ("folded", "compiled")
            for task, method in CASES
        },
    }


def _train(task: Any, method: str, recordings: list[tuple[Any, int]], attention: str) -> dict[str, Any]:
    """The loss of every step and the validation metrics of every epoch, as hexadecimal floats."""
    from event2vec import EventStore, Recipe, Run
    from event2vec.data.datasets.digits import CLASSES, SENSOR

    splits = ["train"] * TRAIN + ["validation"] * TEST
    settings = {"sampling.method": method, "sampling.length": CLUSTERS, "model.pooling": task == "train"}
    recipe = Recipe().with_settings(SETTINGS | settings)
    with attention_of(attention), noting_losses() as losses, tempfile.TemporaryDirectory() as folder:
        store = EventStore.create(
            Path(folder) / "store", recordings, sensor=SENSOR, classes=list(CLASSES), splits=splits
        )
        Run.start(recipe, store, Path(folder) / "run", task)
        with (Path(folder) / "run/metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    tested = [{name: float(value).hex() for name, value in row.items() if "validation_" in name} for row in rows]
    return {"losses": [loss.hex() for loss in losses], "epochs": tested}


# All that training draws or adds takes part: augmentation, mixing, skipped blocks, clipping, decay, the schedule.
SETTINGS: dict[str, Any] = {
    "augment.probability": 0.5,
    "augment.rotate": 15.0,
    "augment.translate": 2.0,
    "model.dim": 16,
    "model.hidden": 32,
    "model.blocks": 2,
    "model.drop_path": 0.2,
    "model.forget_bias": 4.0,
    "objective.label_smoothing": 0.1,
    "objective.token_mix": 0.5,
    "training.epochs": 4,
    "training.batch": 8,
    "training.learning_rate": 0.05,
    "training.warmup_epochs": 1.0,
    "training.weight_decay": 0.05,
    "training.clip": 1.0,
    "training.seed": 0,
    "trainer.accelerator": "cpu",
    "trainer.devices": 1,
}


@contextmanager
def attention_of(kind: str) -> Iterator[None]:
    """Forgetting attention by compiled code, or folded into the stock kernel as where nothing could be compiled."""
    from event2vec.model.compiled_attention import Settings

    used = Settings.used
    Settings.used = used and kind != "folded"
    try:
        yield
    finally:
        Settings.used = used


@contextmanager
def noting_losses() -> Iterator[list[float]]:
    """The loss of every step of the trainings within, to the bit: progress shows it rounded."""
    from event2vec.training.lightning_module import Learner

    losses, step = [], Learner.training_step

    def note(learner: Learner, batch: Any, batch_idx: int) -> Any:
        loss = step(learner, batch, batch_idx)
        losses.append(float(loss))
        return loss

    Learner.training_step = note  # type: ignore[assignment, method-assign]
    try:
        yield losses
    finally:
        Learner.training_step = step  # type: ignore[method-assign]


def make_losses() -> None:
    write_json(FOLDER / "losses.json", measure_losses())


DIGITS = ("3", "7")
HEIGHT = 30  # of the camera that most encoders pretend to be; the digits are seen by one of 34 x 34


def make_recordings() -> None:
    """Each digit in each format; the same digit is another picture in every format."""
    import encoders

    from event2vec import Events, Sensor

    shutil.rmtree(FOLDER / "recordings", ignore_errors=True)
    facts = {}
    for digit in DIGITS:
        (FOLDER / "recordings" / digit).mkdir(parents=True)
        for number, (name, (_, _, (width, height), declared, format)) in enumerate(encoders.FILES.items()):
            columns = _columns_of(_pictures(digit)[number], width, height)
            with _encoding(columns):
                path = encoders.write(name, FOLDER / "recordings" / digit)
            written = Events.from_arrays(*columns, sensor=Sensor(width, height))
            known = {"format": format, "sensor": [width, height], "declared": declared, "digest": digest([written])}
            facts[path.relative_to(FOLDER / "recordings").as_posix()] = known
    write_json(FOLDER / "recordings.json", facts)


def _pictures(digit: str) -> list[Any]:
    """Recordings of one digit from the test split of the digits."""
    from event2vec import open_dataset

    data = open_dataset("digits", None, "test")
    return [data[index][0] for index, label in enumerate(data.labels) if data.classes[label] == digit][:20]


def _columns_of(events: Any, width: int, height: int) -> tuple[Any, Any, Any, Any]:
    """As many events as an encoder takes, spread over the recording and the sensor, with its corners in use."""
    import encoders
    import numpy as np

    seen = np.flatnonzero(events.y.numpy() < HEIGHT)
    kept = seen[np.linspace(0, len(seen) - 1, encoders.COUNT).astype(int)]
    x, y = (column.numpy()[kept].astype(np.int64) for column in (events.x, events.y))
    x, y = x * width // events.sensor.width, y * height // HEIGHT
    x[:2], y[:2] = (0, width - 1), (height - 1, 0)
    return x, y, events.t.numpy()[kept] + encoders.START, events.p.numpy()[kept].astype(np.int64)


@contextmanager
def _encoding(columns: tuple[Any, Any, Any, Any]) -> Iterator[None]:
    """Encoders write these columns instead of their own."""
    import encoders

    own = encoders.columns
    encoders.columns = lambda *_: columns
    try:
        yield
    finally:
        encoders.columns = own


def make_network() -> None:
    """Train on the digits' training split, and keep what the network answers about the recordings."""
    from event2vec import Recipe, Run, load_model, save_model

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        Run.start(Recipe().with_settings(NETWORK), _two_digits(Path(folder) / "store"), run, "train")
        save_model(load_model(run), FOLDER / "network")
    model = load_model(FOLDER / "network")
    write_json(FOLDER / "logits.json", {path: answer(model, FOLDER / "recordings" / path) for path in known_files()})


NETWORK = SETTINGS | {
    "sampling.length": 256,
    "objective.token_mix": 0.0,
    "model.sensor": "34x34",
    "training.epochs": 30,
    "training.learning_rate": 0.15,
}


def _two_digits(folder: Path) -> Any:
    from event2vec import EventStore, open_dataset

    data = open_dataset("digits", None, "train")
    chosen = [index for index, label in enumerate(data.labels) if data.classes[label] in DIGITS][:160]
    pairs = ((events, DIGITS.index(data.classes[label])) for events, label in (data[index] for index in chosen))
    thinned = ((events.select(slice(None, None, max(len(events) // 200, 1))), label) for events, label in pairs)
    return EventStore.create(folder, thinned, sensor=data[0][0].sensor, classes=list(DIGITS))


def known_files() -> list[str]:
    return list(json.loads((FOLDER / "recordings.json").read_text()))


def answer(model: Any, path: Path) -> list[float]:
    """The logits of all events of a recording."""
    import torch

    from event2vec import EventBatch, read_events

    with torch.no_grad():
        logits = model(EventBatch.pad([read_events(path, usual=model.config.sensor).on_sensor(model.config.sensor)]))
    return [round(value, 6) for value in logits[0].tolist()]


def write_json(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n")


MAKERS = {"losses": make_losses, "recordings": make_recordings, "network": make_network}


def main(arguments: list[str]) -> None:
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, __file__, *arguments], os.environ | ENVIRONMENT)
    if arguments == ["--show"]:
        json.dump(measure_losses(), sys.stdout)
        return
    for name in arguments or MAKERS:
        MAKERS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
