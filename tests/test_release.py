"""What people install and read: the version, the files of a wheel, the pages of the site, the notebooks."""

import json
import re
import tarfile
import tomllib
import zipfile

import packaged
import pytest
import yaml
from processes import SECONDS_TO_END

import event2vec
from event2vec.documents import read_text

ROOT = packaged.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_written_in_one_place_and_cited():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "event2vec.__version__"}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == event2vec.__version__


def test_the_runtime_has_the_same_licence():
    """As text: a link is lost on the way through some tools, and what is left names a file that nobody has."""
    assert (ROOT / "runtime/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_file_of_the_package_is_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["event2vec"]
    covered = {path for pattern in patterns for path in (ROOT / "event2vec").glob(pattern)}
    others = {ROOT / name for name in packaged.files_of_the_package() if not name.endswith((".py", ".c"))}
    assert not others - covered, "add it to package-data in pyproject.toml"


def make_wheel(path, files, compiled, metadata=""):
    libraries = [f"{name}.cpython-311-x86_64-linux-gnu.so" for name in compiled]
    facts = path.name.partition("-cp")[0] + ".dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name in [*files, *libraries]:
            archive.writestr(name, "")
        archive.writestr(f"{facts}/METADATA", metadata)
        archive.write(ROOT / "LICENSE", f"{facts}/licenses/LICENSE")
    return path


@pytest.fixture
def built(tmp_path):
    """A wheel with all files of the package and both libraries."""
    path = tmp_path / "event2vec-0.1.0-cp311-cp311-linux_x86_64.whl"
    return make_wheel(path, packaged.files_of_the_package(), packaged.COMPILED)


@pytest.fixture
def built_runtime(tmp_path):
    path = tmp_path / "event2vec_runtime-0.1.0-cp311-cp311-linux_x86_64.whl"
    return make_wheel(path, packaged.files_of_the_runtime(), packaged.COMPILED[:1], "Requires-Dist: numpy>=1.26\n")


def without(path, part):
    """The same wheel without the files whose names have `part` in them."""
    other = path.parent / "other" / path.name
    other.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(other, "w") as archive:
        for name in whole.namelist():
            if part not in name:
                archive.writestr(name, whole.read(name))
    return other


PARTS = ("recipes/folder.yaml", "experiments/events.yaml", "live.html", "py.typed", "_compiled_engine", "LICENSE")


def test_a_wheel_that_is_not_whole_is_refused(built, capsys):
    assert packaged.main([str(built)]) == 0
    for part in PARTS:
        assert packaged.main([str(without(built, part))]) == 1
        assert part in capsys.readouterr().err
    with zipfile.ZipFile(built, "a") as archive:
        archive.writestr("tests/test_events.py", "")
    assert packaged.main([str(built)]) == 1, "our tests are not a package of the user's"


def test_a_wheel_of_the_runtime_that_is_not_whole_is_refused(built_runtime, capsys):
    assert packaged.main([str(built_runtime)]) == 0
    for part in ("event2vec/runtime/engines.py", "py.typed", "_compiled_engine", "LICENSE"):
        assert packaged.main([str(without(built_runtime, part))]) == 1
        assert part in capsys.readouterr().err
    files = packaged.files_of_the_runtime() | {"event2vec/training/train.py"}
    make_wheel(built_runtime, files, packaged.COMPILED[:1], "Requires-Dist: numpy\nRequires-Dist: torch>=2.6\n")
    assert packaged.main([str(built_runtime)]) == 1
    said = capsys.readouterr().err
    assert "requires torch" in said
    assert "has event2vec/training/train.py, which is not in the project" in said


def test_a_source_archive_without_what_is_compiled_is_refused(tmp_path, capsys):
    path = tmp_path / "event2vec-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in {*packaged.files_of_the_package(), *packaged.BESIDE} - {"event2vec/model/compiled_rows.h"}:
            archive.add(ROOT / name, f"event2vec-0.1.0/{name}")
    assert packaged.main([str(path)]) == 1
    assert "lacks event2vec/model/compiled_rows.h" in capsys.readouterr().err


def test_what_is_imported_from_the_clone_is_not_what_was_installed(capsys):
    assert packaged.main(["--installed"]) == 1
    assert "expected an installed package" in capsys.readouterr().err


def test_every_page_is_in_the_navigation():
    site = read_text(ROOT / "mkdocs.yml", 1 << 16)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages == set(re.findall(r": ([\w/]+\.md)$", site, re.MULTILINE))


def test_the_readme_links_to_files_that_are_there():
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert links
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_results(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of Jupyter are not ours; what a notebook warns of goes to its own page
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    monkeypatch.setenv("EVENT2VEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    client(notebook, timeout=SECONDS_TO_END, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output.get("name") == "stderr"], "nothing goes wrong in passing"
    assert any("text/html" in output.get("data", {}) for output in shown), "the event player"
    for share in re.findall(r"(\d+)% of 16 test recordings", "".join(output.get("text", "") for output in shown)):
        assert int(share) > 80, "a reader would not believe the rest"
