"""The shape of the project: which way imports point, what is public, what must not come in."""

import ast
import builtins
import inspect
import pkgutil
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import event2vec
from event2vec.cli import VERBS, build_parser
from event2vec.cli.printing import ARGUMENT, option_of

PACKAGE = Path(event2vec.__file__).parent
ROOT = PACKAGE.parent


def rooms_in_order():
    """The rooms of the map in the package's docstring, by their lines. What comes before the folders is one room."""
    _, _, rest = (event2vec.__doc__ or "").partition("Imports point up this list.\n\n")
    first, folders = rest.partition("\n\nPublic names")[0].split("\n\n")
    names = {name: 0 for line in first.splitlines() for name in line[:28].replace(",", "").split()}
    for depth, line in enumerate(folders.splitlines(), 1):
        names |= {name.strip("/"): depth for name in line[:28].replace(",", "").split()}
    return names


# Imports point up this list, never down.
LAYER = rooms_in_order()
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
    "huggingface_hub",
    "safetensors",
    "PIL",
    "websockets",
    "ray",
    "fsspec",
    "onnxruntime",
    "onnxscript",
    "openvino",
}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported(path, top_level_only=False):
    """Names of modules that a file imports; those for the type checker alone do not count."""
    tree = ast.parse(path.read_text())
    blocks = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    types_only = {node for block in blocks for node in ast.walk(block)}
    for node in tree.body if top_level_only else ast.walk(tree):
        if node in types_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))
        elif isinstance(node, ast.Constant) and (named := re.fullmatch(r"(event2vec[\w.]+):\w+", str(node.value))):
            yield named[1]  # module:class, as networks are registered


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] in ("__init__", "__main__"):
        return
    assert parts[0] in LAYER, f"{parts[0]} has no layer: add it to the map in the docstring of event2vec"
    for module in imported(path):
        room = module.split(".")[1] if module.startswith("event2vec.") else ""
        if room in LAYER:
            assert LAYER[room] <= LAYER[parts[0]], f"{path.name} imports {module}, which is further down the flow"


def test_no_modules_import_each_other_in_a_circle_however_long():
    """Imports by name count too. The package itself, which loads public names on demand, does not."""
    modules = {name_of(path): path for path in SOURCES if path != PACKAGE / "__init__.py"}
    graph = {name: {*imported(path)} & modules.keys() - {name} for name, path in modules.items()}
    while leaves := {name for name, below in graph.items() if not below & graph.keys()}:
        graph = {name: below for name, below in graph.items() if name not in leaves}
    assert not graph, "each of these imports another of them"


def name_of(path):
    return ".".join(("event2vec", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_they_are_used(path):
    made_of_lightning = ("lightning_module", "callbacks", "fit")
    allowed = {"lightning"} if path.stem in made_of_lightning else set()
    if path.name == "hdf5_child.py":  # a program of its own, which nothing imports
        allowed = {"h5py", "hdf5plugin"}
    modules = set(imported(path, top_level_only=True))
    assert not {module.split(".")[0] for module in modules} & HEAVY - allowed
    assert path.stem in made_of_lightning or not {f"event2vec.training.{name}" for name in made_of_lightning} & modules


def texts(path):
    """Text in a file that is not documentation, with the parts of each f-string together."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None  # a docstring
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield node.value


LIBRARY = [path for path in SOURCES if "cli" not in path.relative_to(PACKAGE).parts]
REPEATS = "epochs, each of `repeats` passes over the training recordings"  # explains a setting
MARKDOWN = ("checkpoint.py", "model_card.py")  # which explain a network to people, with whole commands


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_messages_of_the_library_name_arguments_not_options(path):
    """A Python user has no options; the command line shows an argument such as `data` as its option."""
    for text in texts(path):
        whole = re.sub(r"(event2vec|ray|ruff) (\w+|\{\}) .*", "", text)  # a command for the shell
        assert not re.search(r"(?<![\w-])--[a-z]", whole.strip()) or re.fullmatch("--[a-z]+", text), text
        if path.name not in MARKDOWN and text != REPEATS:
            assert {*re.findall("`([a-z_]+)`", text)} <= {*ARGUMENT.findall(text)}, text


def test_every_argument_that_a_message_names_is_an_option_of_a_verb():
    options = {name for verb in VERBS for name in build_parser(verb)._option_string_actions}
    named = {name for path in LIBRARY for text in texts(path) for name in ARGUMENT.findall(text)}
    assert {option_of(name) for name in named} <= options
    assert all(option_of(name) in options for name in ARGUMENT.pattern.strip("`()").split("|"))


def test_forbidden_packages_are_not_asked_for():
    settings = (ROOT / "pyproject.toml").read_text()
    for name in ("torchvision", "torchaudio", "tonic", "timm", "litdata"):
        assert name not in settings


def test_public_names_are_there_and_in_flow_order():
    for name in event2vec.__all__:
        assert getattr(event2vec, name).__name__ == name
        assert name in dir(event2vec)
    homes = [event2vec._HOMES[name].split(".")[0] for name in event2vec.__all__]
    assert [LAYER[home] for home in homes] == sorted(LAYER[home] for home in homes)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = event2vec.nonsense


RESULTS = {"Event2VecError", "Event2VecWarning", "Prediction", "Evaluation", "Timeline"}  # what functions give


# What the reader of an example has: modules, and what other calls gave.
AT_HAND = {"event2vec", "torch", "F", "DataLoader"}
AT_HAND |= {"events", "shorter", "store", "model", "paths", "q", "k", "v", "gates"}


@pytest.mark.parametrize("name", sorted({*event2vec.__all__} - RESULTS))
def test_every_public_name_has_an_example(name):
    lines = (inspect.getdoc(getattr(event2vec, name)) or "").splitlines()
    example = ast.parse("\n".join(line[4:] for line in lines if line.startswith("    ")))
    assert example.body, "an indented part of its docstring"
    names = [node for node in ast.walk(example) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    assert used <= made | AT_HAND | {*event2vec.__all__, *dir(builtins)}, "which a reader cannot import"
    for dotted in (ast.unparse(node) for node in ast.walk(example) if isinstance(node, ast.Attribute)):
        root, _, rest = dotted.partition(".")
        if re.fullmatch(r"[\w.]+", dotted) and (root == "event2vec" or root in event2vec.__all__):
            attrgetter(rest if root == "event2vec" else dotted)(event2vec)


def test_the_map_in_the_docstring_names_every_part():
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix != ".so"} - {
        "__pycache__"
    }
    for part in {part for part in parts if not part.startswith("__") and part != "py"}:
        assert re.search(rf"\b{part}\b", event2vec.__doc__), f"{part} is not in the map of event2vec/__init__.py"


def test_the_readme_has_the_same_map():
    _, _, rest = event2vec.__doc__.partition("Imports point up this list.\n\n")
    assert rest.partition("\n\nPublic names")[0] in (ROOT / "README.md").read_text()


def rows_of(document):
    """The cells of the rows of its tables."""
    lines = (ROOT / "docs" / document).read_text("utf-8").splitlines()
    return [line.split("|")[1:-1] for line in lines if line.startswith("| ")][1:]


def files_named():
    """Files and folders in the tables of docs/architecture.md; within a cell, later ones are beside the first."""
    for row in rows_of("architecture.md"):
        names = re.findall(r"`([\w/]+(?:\.py|\.c|/))`", row[1])
        for name in names:
            path = PACKAGE / name
            yield path if path.exists() else PACKAGE / Path(names[0]).parent / name


def test_the_documents_name_files_that_are_there():
    assert [path for path in files_named() if not path.exists()] == []


def test_the_documents_name_every_file():
    named = set(files_named())
    missing = [path for path in SOURCES if not path.stem.startswith("__") and not named & {path, *path.parents}]
    assert not missing, "name it in the table of docs/architecture.md, with what it guarantees"


def test_what_the_paper_is_mapped_to_is_there():
    """Names in docs/paper_map.md: by path, or beside the one before; tests by file and name, or by name alone."""
    for _, code, tests in rows_of("paper_map.md"):
        module = event2vec
        for name in re.findall(r"`([\w.]+)`", code):
            if name.split(".")[0] in LAYER:
                module = sys.modules[pkgutil.resolve_name(f"event2vec.{name}").__module__]
            else:
                assert attrgetter(name)(module), name
        for path in re.findall(r"`([\w*]+/[\w*.]+)`", code):
            assert [*PACKAGE.glob(path), *ROOT.glob(path)], path
        source = ""
        for file, case in re.findall(r"`(?:(test_\w+)(?:: )?)?(\w*)`", tests):
            source = (ROOT / "tests" / f"{file}.py").read_text() if file else source
            assert f"def test_{case}" in source, (file, case)


def test_every_file_says_what_it_does_in_its_first_line():
    for path in SOURCES:
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_no_file_is_a_drawer():
    assert not [path for path in SOURCES if path.stem in ("utils", "common", "helpers", "misc")]


def test_a_clone_beside_a_script_does_not_shadow_the_package(tmp_path):
    (tmp_path / "event2vec").symlink_to(ROOT)
    (tmp_path / "script.py").write_text("import event2vec\nprint(event2vec.Sensor(3, 4))\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "3x4\n", done.stderr
