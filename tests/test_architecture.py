"""The shape of the project: which way imports point, what is public, what must not come in."""

import ast
import re
from pathlib import Path

import pytest

import event2vec

PACKAGE = Path(event2vec.__file__).parent
ROOT = PACKAGE.parent

# Imports point up this list, never down; neighbours on one line may import each other.
LAYERS = [
    {"errors", "names", "events", "atomic", "locks", "workers", "documents", "settings"}
    | {"machine", "devices", "randomness", "stages"},
    {"io", "sampling", "clouds", "compiled_cloud", "clustering", "kmeans_baselines", "augment", "masking"},
    {"store", "datasets", "embedding", "attention"},
    {"prepare", "backbone", "heads", "model", "checkpoint"},
    {"authors", "objectives", "recipe", "repeats", "loading", "runs", "learner", "training"},
    {"evaluate", "probe", "figures", "benchmark"},
    {"experiment", "tables", "report"},
    {"cli"},
]
LAYER = {name: depth for depth, names in enumerate(LAYERS) for name in names}
HEAVY = {
    "matplotlib",
    "faiss",
    "evlib",
    "lightning",
    "eventcv",
    "event_stream",
    "h5py",
    "scipy",
    "sklearn",
    "hdf5plugin",
    "safetensors",
}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported(path, top_level_only=False):
    """Names of modules that a file imports; those for the type checker alone do not count."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] in ("__init__", "__main__"):
        return
    assert parts[0] in LAYER, f"{parts[0]} has no layer: add it to LAYERS"
    for module in imported(path):
        home = module.split(".")[1] if module.startswith("event2vec.") else ""
        if home:
            assert LAYER[home] <= LAYER[parts[0]], f"{path.name} imports {module}, which is further down the flow"
            pairs = LAYERS[5]
            assert not (home in pairs and parts[0] in pairs and home != parts[0]), f"{path.name} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_they_are_used(path):
    # These are made of Lightning's classes, and training.py is itself imported where it is used.
    allowed = {"lightning"} if path.name in ("learner.py", "training.py") else set()
    if path.name == "hdf5_child.py":  # a program of its own, which nothing imports
        allowed = {"h5py", "hdf5plugin"}
    assert not {module.split(".")[0] for module in imported(path, top_level_only=True)} & HEAVY - allowed
    loaded = {"event2vec.training", "event2vec.learner"} & set(imported(path, top_level_only=True))
    assert not loaded or path.name == "training.py"


def test_forbidden_packages_are_not_asked_for():
    settings = (ROOT / "pyproject.toml").read_text()
    for name in ("torchvision", "torchaudio", "tonic", "timm", "litdata"):
        assert name not in settings


def test_public_names_are_there_and_in_flow_order():
    for name in event2vec.__all__:
        assert getattr(event2vec, name).__name__ == name
        assert name in dir(event2vec)
    homes = [event2vec._HOMES[name] for name in event2vec.__all__]
    assert [LAYER[home] for home in homes] == sorted(LAYER[home] for home in homes)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = event2vec.nonsense


def test_the_map_in_the_docstring_names_every_part():
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix != ".so"} - {
        "__pycache__"
    }
    for part in {part for part in parts if not part.startswith("__") and part != "py"}:
        assert re.search(rf"\b{part}\b", event2vec.__doc__), f"{part} is not in the map of event2vec/__init__.py"


def test_every_file_says_what_it_does_in_its_first_line():
    for path in SOURCES:
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_no_file_is_a_drawer():
    assert not [path for path in SOURCES if path.stem in ("utils", "common", "helpers", "misc")]


def test_versions_agree():
    assert f'version = "{event2vec.__version__}"' in (ROOT / "pyproject.toml").read_text()
