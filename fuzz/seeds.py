"""Small valid input of every kind, to be damaged: made here, and cut from real recordings where they are at hand."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import scipy.io
import torch

from event2vec import (
    Events,
    EventStore,
    ModelConfig,
    Sampling,
    Sensor,
    build_model,
    load_recipe,
    read_events,
    save_model,
    write_events,
)
from event2vec.documents import EXPERIMENTS, RECIPES
from event2vec.model.trained_on import TrainedOn
from event2vec.training.run import Run

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # no package, so that pytest finds each file by its own name
import encoders  # noqa: E402

REAL = ROOT.parent / "shared" / "data" / "recordings"
SENSOR = Sensor(34, 30)
NETWORK = ModelConfig(sensor=SENSOR, classes=3, dim=16, hidden=16, heads=2, blocks=1, pooling=False)
CLASSES = ["ant", "bee", "cat"]
SMALL = {"model.dim": 16, "model.hidden": 16, "model.heads": 2, "model.blocks": 1, "sampling.method": "random"}
TRAINING = load_recipe("folder").with_settings(SMALL | {"training.epochs": 1, "training.batch": 2})

MEASURED = {"recipe": "asl_dvs", "length": 1024, "ours ms": 12.5, "x stock": 1.5, "other": "-"}
COMPARISON = {"attention": [MEASURED, MEASURED | {"length": 4096}], "model": [MEASURED]}

Make = Callable[[Path], object]  # writes seeds into a folder: each file or folder there is one


def recordings(*names: str, real: tuple[str, ...] = (), cut: int = 6000) -> Make:
    """Files of tests/encoders.py, and the first bytes of real ones."""

    def make(folder: Path) -> None:
        for name in names:
            encoders.write(name, folder)
        for name in real:
            if (REAL / name).is_file():
                with (REAL / name).open("rb") as file:
                    (folder / name).write_bytes(file.read(cut))

    return make


def make_npz(folder: Path) -> None:
    """As others write them and as we do, with rho and sensor."""
    events = read_events(encoders.write("npz", folder))
    write_events(folder / "ours.npz", events)


def make_npy(folder: Path) -> None:
    encoders.write("npy", folder)
    x, y, t, p = encoders.columns()
    np.save(folder / "plain.npy", np.stack([t, x, y, p], axis=1))


def make_mat(folder: Path) -> None:
    """Deflated and not; the date in the header is one that stays."""
    compressed = encoders.write("mat", folder)
    table = {name: column for name, column in scipy.io.loadmat(compressed).items() if name[0] != "_"}
    scipy.io.savemat(folder / "plain.mat", table)
    for path in (compressed, folder / "plain.mat"):
        path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + path.read_bytes()[116:])


def make_hdf5(folder: Path) -> None:
    """The three layouts, and what HDF5 can hold besides."""
    for name in ("hdf5", "hdf5_dsec", "hdf5_metavision"):
        encoders.write(name, folder)
    x, y, t, p = encoders.columns()
    write_events(folder / "ours.h5", read_events(folder / "hdf5.h5"))
    flat = {"x": x, "y": y, "t": t, "p": p}
    odd: dict[str, dict[str, object]] = {
        "scalars": {name: column[0] for name, column in flat.items()},
        "floats": {name: column.astype("f4") for name, column in flat.items()},
        "wide": {name: column[:, None] for name, column in flat.items()},
        "texts": flat | {"p": [b"on"] * len(p)},
        "empty": {name: column[:0] for name, column in flat.items()},
        "nothing": flat | {"t": h5py.Empty("i8")},
    }
    for name, table in odd.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for column, values in table.items():
                file[f"events/{column}"] = values
    with h5py.File(folder / "strange.h5", "w") as file:
        _fill_strangely(file, flat)


def _fill_strangely(file: h5py.File, columns: dict[str, np.ndarray]) -> None:
    """Links, open lengths, a chain of filters and deep groups, beside columns in the root."""
    for name, column in columns.items():
        chain = file.create_dataset(name, data=column, chunks=(50,), shuffle=True, compression=4, fletcher32=True)
        chain.attrs["unit"] = "us"
    file["loop"] = h5py.SoftLink("/loop")
    file["outside"] = h5py.ExternalLink("elsewhere.h5", "/events")
    ragged = file.create_dataset("deep/er/ragged", (3,), h5py.vlen_dtype("i4"))
    ragged[0] = [1, 2, 3]
    file.create_dataset("stored", (64,), "u1", external=[("elsewhere.bin", 0, 64)])
    file["t_offset"], file.attrs["geometry"] = np.float64(1e6), "34x30"
    file.attrs["width"], file.attrs["height"] = 34, 30


def make_store(folder: Path) -> None:
    """Whole pixels, and clusters with rho and longer times."""
    x, y, t, p = encoders.columns()
    events = read_events(encoders.write("npz", folder))
    recordings = [(events, 0), (events, 0), (events, 2)]
    splits, sets = ["train", "train", "test"], [0, 1, 0]
    facts = {"sensor": SENSOR, "classes": CLASSES, "splits": splits, "sources": ["a", "a", "b"], "sets": sets}
    EventStore.create(folder / "pixels", recordings, **facts)  # type: ignore[arg-type]
    centres = type(events).from_arrays(x + 0.0, y * 0.5, (t - t[0]) << 20, p, sensor=SENSOR, rho=np.full(len(t), 2.5))
    EventStore.create(folder / "centres", [(centres, 0)], sensor=SENSOR, classes=CLASSES)
    (folder / "npz.npz").unlink()


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    model = build_model(NETWORK, class_names=CLASSES, sampling=Sampling(length=64))
    model.temperature, model.trained_on = 1.5, TrainedOn(3, (0.01,) * 7, (20.0,) * 7, (2000.0,) * 7)
    save_model(model, folder / "model")
    (folder / "model" / "README.md").unlink()  # nobody reads it back


def make_checkpoint(folder: Path) -> None:
    """A network of one block in the authors' layout."""
    generator = torch.Generator().manual_seed(0)
    block, attention = "backbone_net.layers.0", "backbone_net.layers.0.attention.attention"
    shapes: dict[str, tuple[int, ...]] = {"heads.weight": (3, 16), "heads.bias": (3,)}
    for linear, norm, wide, narrow in ((0, 1, 4, 3), (3, 4, 8, 4), (6, 7, 16, 8)):
        shapes |= {f"embed_net.embed.{linear}.weight": (wide, narrow)}
        shapes |= {f"embed_net.embed.{norm}.{kind}": (wide,) for kind in ("weight", "bias")}
    for convolution, norm, wide in ((0, 2, 4), (5, 7, 8), (10, 12, 16)):
        shapes |= {f"tpe.conv.{convolution}.weight": (wide, 1, 3)}
        shapes |= {f"tpe.conv.{norm}.{kind}": (wide,) for kind in ("weight", "bias")}
    rows = {"q": 16, "k": 8, "v": 8, "f": 2}
    shapes |= {f"{attention}.{letter}_proj.weight": (count, 16) for letter, count in rows.items()}
    shapes |= {f"{attention}.f_proj.bias": (2,), f"{attention}.o_proj.weight": (16, 32)}
    shapes |= {f"{attention}.q_norm.weight": (16,), f"{attention}.k_norm.weight": (8,)}
    shapes |= {f"{block}.ffn.linear{number}.weight": (16, 16) for number in (1, 2)}
    norms = (f"{block}.norm1", f"{block}.norm2", "backbone_net.norm")
    shapes |= {f"{norm}.{kind}": (16,) for norm in norms for kind in ("weight", "bias")}
    weights = {f"classifier.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    torch.save({"state_dict": weights, "epoch": 1}, folder / "authors.ckpt")
    decoder: dict[str, tuple[int, ...]] = {"mask_token": (16,)}
    for linear, wide, narrow in ((0, 8, 16), (3, 4, 8), (6, 3, 4)):
        decoder |= {f"heads.{linear}.weight": (wide, narrow)}
    for norm, wide in ((1, 8), (4, 4)):
        decoder |= {f"heads.{norm}.{kind}": (wide,) for kind in ("weight", "bias")}
    del weights["classifier.heads.weight"], weights["classifier.heads.bias"]
    weights |= {f"classifier.{name}": torch.randn(shape, generator=generator) for name, shape in decoder.items()}
    torch.save({"state_dict": weights}, folder / "masked.ckpt")


def make_state(folder: Path) -> None:
    """The state that a training of one epoch leaves behind."""
    run = Run.start(TRAINING, write_store(folder / "store"), folder / "run")
    shutil.move(run.state, folder)
    shutil.rmtree(run.folder)
    shutil.rmtree(folder / "store")


def write_store(folder: Path) -> EventStore:
    x, y, t, p = encoders.columns()
    events = Events.from_arrays(x, y, t - t[0], p, sensor=SENSOR)
    return EventStore.create(folder, [(events, 0), (events, 1)], sensor=SENSOR, classes=CLASSES, splits=["train"] * 2)


def make_result(folder: Path) -> None:
    """What an experiment keeps of a run."""
    timed = {"clustering_ms": [1.5, 0.25], "timed_recordings": 4}
    result = {"accuracy": 0.5, "accuracies": [0.5, 0.5], "recordings": 4, "parameters": 100, "seconds": 1.5}
    result |= {"epochs": 3}
    (folder / "result.json").write_text(json.dumps(result | {"timed": timed}, indent=2))


def make_run(folder: Path) -> None:
    """What lies beside the networks."""
    run = folder / "run"
    run.mkdir()
    facts = {"task": "train", "data": "store", "source": None, "init": None, "environment": {"threads": 1}}
    (run / "run.json").write_text(json.dumps(facts, indent=2))
    (run / "metrics.csv").write_text("epoch,loss,accuracy,seconds,data_share\n0,2.5,0.1,1.5,0.01\n1,1.25,,1.5,0.01\n")
    shutil.copy(RECIPES.find("digits"), run / "recipe.yaml")


def make_recipes(folder: Path) -> None:
    for path in RECIPES.folder.glob("*.yaml"):
        shutil.copy(path, folder)


def make_experiments(folder: Path) -> None:
    for path in EXPERIMENTS.folder.glob("*.yaml"):
        shutil.copy(path, folder)


def make_settings(folder: Path) -> None:
    """What people type behind options: a name and a value on each line."""
    (folder / "settings.txt").write_text(
        "training.epochs 3\nmodel.sensor 34x30\nmodel.pooling false\ntraining.learning_rate 1e-3\nname digits\n"
        "trainer.devices auto\nsampling.method clusters\naugment.rotate 10\nmodel.classes 10\n"
        "objective.label_smoothing 0.1\n"
    )


def make_options(folder: Path) -> None:
    """--sensor, --columns, --events, as a line each."""
    (folder / "options.txt").write_text("34x30\ntxyp\n1,2,4\n")


def make_comparison(folder: Path) -> None:
    """What `event2vec benchmark --json` wrote earlier."""
    (folder / "before.json").write_text(json.dumps(COMPARISON | {"changes": []}, indent=2))


def make_gestures(folder: Path) -> None:
    """DVS Gesture as it is published: a recording, its labels, and which recordings to train on."""
    root = folder / "gestures"
    root.mkdir()
    encoders.aedat31(root / "user.aedat")
    (root / "user_labels.csv").write_text("class,startTime_usec,endTime_usec\n1,1000000,1100000\n11,1150000,1290000\n")
    (root / "trials_to_train.txt").write_text("user.aedat\nmissing.aedat\n")
