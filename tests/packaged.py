"""What people install is whole: checks a wheel or an archive of the source, or the package that Python imports here.

    python tests/packaged.py dist/*
    python tests/packaged.py --installed

It needs nothing but Python for files, and nothing but the package itself for what is installed. `make wheel` runs the
first, cibuildwheel the second.
"""

import re
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("event2vec/clustering/_compiled_engine", "event2vec/model/_compiled_attention")
LIBRARIES = (".so", ".pyd")
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "Makefile")


def files_of_the_package() -> set[str]:
    """All that belongs to the package: code, recipes, experiments, pages, headers, py.typed."""
    paths = (path for path in (ROOT / "event2vec").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths if path.suffix not in LIBRARIES}


def problems_of(archive: Path) -> list[str]:
    """What a wheel or a source archive lacks or should not have."""
    if archive.suffix == ".whl":
        names = set(zipfile.ZipFile(archive).namelist())
        libraries = {name for name in names if name.endswith(LIBRARIES)}
        needed = {name for name in files_of_the_package() if not name.endswith(".c")}
        found = {re.sub(r"\..*", "", name) for name in libraries}
        lacking = [f"lacks {name}: was there a compiler?" for name in COMPILED if name not in found]
        unknown = {name for name in names if ".dist-info/" not in name} - libraries - files_of_the_package()
    else:
        with tarfile.open(archive) as file:
            names = {name.partition("/")[2] for name in file.getnames()}
        needed, lacking = files_of_the_package() | set(BESIDE), []
        unknown = {name for name in names if name.endswith(LIBRARIES) or "__pycache__" in name}
    return [
        *lacking,
        *(f"lacks {name}" for name in sorted(needed - names)),
        *(f"has {name}, which is not in the project" for name in sorted(unknown)),
    ]


def problems_of_the_installed() -> list[str]:
    """Whether the package that is imported is not the clone's, has its compiled parts, and reads its own files."""
    package = import_module("event2vec")
    if Path(package.__file__ or "").resolve().is_relative_to(ROOT / "event2vec"):
        return [f"event2vec is imported from {ROOT}, expected an installed package"]
    loaded = {
        "event2vec.clustering.compiled_engine": import_module("event2vec.clustering.compiled_engine").library(),
        "event2vec.model.compiled_attention": import_module("event2vec.model.compiled_attention").library(),
    }
    for name, library in loaded.items():
        say(f"{name}: {library._name if library else 'not loaded'}")
    recipes = {path.stem for path in (ROOT / "event2vec/recipes").glob("*.yaml")}
    known = set(import_module("event2vec.documents").RECIPES.names())
    return [
        *(f"{name} has no compiled library" for name, library in loaded.items() if library is None),
        *(f"recipe {name} is missing" for name in sorted(recipes - known)),
    ]


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
