"""What people install is whole: checks a wheel or an archive of the source, or the package that Python imports here.

    python tests/packaged.py dist/*
    python tests/packaged.py --installed

It needs nothing but Python for files, and nothing but the package itself for what is installed. `make wheel` runs the
first, cibuildwheel the second. Wheels of event2vec-runtime, which has a part of the modules, are known by their name.
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("event2vec/clustering/_compiled_engine", "event2vec/model/_compiled_attention")
LIBRARIES = (".so", ".pyd")
RUNTIME = "event2vec_runtime-"
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "Makefile")


def files_of_the_package() -> set[str]:
    """All that belongs to the package: code, recipes, experiments, pages, headers, py.typed."""
    paths = (path for path in (ROOT / "event2vec").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths if path.suffix not in LIBRARIES}


def files_of_the_runtime() -> set[str]:
    """The modules that runtime/pyproject.toml lists, and py.typed."""
    settings = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text("utf-8"))
    modules = settings["tool"]["setuptools"]["py-modules"]
    return {f"{name.replace('.', '/')}.py" for name in modules} | {"event2vec/py.typed"}


def problems_of(archive: Path) -> list[str]:
    """What a wheel or a source archive lacks or should not have."""
    if archive.name.startswith(RUNTIME):
        return [*problems_of_a_wheel(archive, files_of_the_runtime(), COMPILED[:1]), *needless(archive)]
    if archive.suffix == ".whl":
        needed = {name for name in files_of_the_package() if not name.endswith(".c")}
        return problems_of_a_wheel(archive, needed, COMPILED)
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    unknown = {name for name in names if name.endswith(LIBRARIES) or "__pycache__" in name}
    return differences(names, files_of_the_package() | set(BESIDE), unknown)


def problems_of_a_wheel(archive: Path, needed: set[str], compiled: tuple[str, ...]) -> list[str]:
    with zipfile.ZipFile(archive) as file:
        names = set(file.namelist())
        licences = [file.read(name) for name in names if re.search(r"\.dist-info/licenses/LICENSE$", name)]
    libraries = {name for name in names if name.endswith(LIBRARIES)}
    found = {re.sub(r"\..*", "", name) for name in libraries}
    sources = {name for name in files_of_the_package() if name.endswith(".c")}
    unknown = {name for name in names if ".dist-info/" not in name} - libraries - needed - sources
    return [
        *(f"lacks {name}: was there a compiler?" for name in compiled if name not in found),
        *([] if licences == [(ROOT / "LICENSE").read_bytes()] else ["lacks the text of LICENSE"]),
        *differences(names, needed, unknown),
    ]


def differences(names: set[str], needed: set[str], unknown: set[str]) -> list[str]:
    return [
        *(f"lacks {name}" for name in sorted(needed - names)),
        *(f"has {name}, which is not in the project" for name in sorted(unknown)),
    ]


def needless(archive: Path) -> list[str]:
    """What the runtime exists to do without."""
    with zipfile.ZipFile(archive) as file:
        metadata = [file.read(name).decode("utf-8") for name in file.namelist() if name.endswith(".dist-info/METADATA")]
    found = re.findall(r"^Requires-Dist: (torch|lightning)\b", "\n".join(metadata), re.MULTILINE)
    return [f"requires {name}" for name in found]


def problems_of_the_installed() -> list[str]:
    """Whether the package that is imported is not the clone's, has its compiled parts, and reads its own files."""
    package = import_module("event2vec")
    if Path(package.__file__ or "").resolve().is_relative_to(ROOT / "event2vec"):
        return [f"event2vec is imported from {ROOT}, expected an installed package"]
    if find_spec("event2vec.training") is None:
        return problems_of_the_installed_runtime()
    recipes = {path.stem for path in (ROOT / "event2vec/recipes").glob("*.yaml")}
    known = set(import_module("event2vec.documents").RECIPES.names())
    return [
        *without_library("event2vec.clustering.compiled_engine", "event2vec.model.compiled_attention"),
        *(f"recipe {name} is missing" for name in sorted(recipes - known)),
    ]


def problems_of_the_installed_runtime() -> list[str]:
    import_module("event2vec.runtime")
    needless = [f"{name} was imported" for name in ("torch", "lightning") if name in sys.modules]
    return [*without_library("event2vec.clustering.compiled_engine"), *needless]


def without_library(*modules: str) -> list[str]:
    """What is wrong with compiled parts; where each was found is said."""
    loaded = {name: import_module(name).library() for name in modules}
    for name, library in loaded.items():
        say(f"{name}: {library._name if library else 'not loaded'}")
    return [f"{name} has no compiled library" for name, library in loaded.items() if library is None]


def say(line: str, problem: bool = False) -> None:
    print(line, file=sys.stderr if problem else sys.stdout)


def main(arguments: list[str]) -> int:
    if not arguments:
        say(__doc__ or "")
        return 2
    if arguments == ["--installed"]:
        found = [("installed", problem) for problem in problems_of_the_installed()]
    else:
        found = [(name, problem) for name in arguments for problem in problems_of(Path(name))]
    for name, problem in found:
        say(f"{name}: {problem}", problem=True)
    say("whole" if not found else f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
