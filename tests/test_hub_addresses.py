"""Files on the Hub by their addresses: what names one, which commit is read, and one line for all that goes wrong."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from shell import run

from event2vec.errors import Event2VecError, FileError, Unreachable
from event2vec.hub import Address, _explain, _fetch, fetch_file, fetch_folder, is_on_hub, one_line_errors

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs pip install 'event2vec[hub]'")
errors = pytest.importorskip("huggingface_hub.errors")
HERE = Address("anna/g", "v1")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf://anna/g", ("anna/g", None, None)),
        ("hf://anna/g/", ("anna/g", None, None)),
        ("hf://anna/g@v1.0", ("anna/g", "v1.0", None)),
        ("hf://anna/g/a/b.ckpt", ("anna/g", None, "a/b.ckpt")),
        ("hf://anna/g@main/b.ckpt", ("anna/g", "main", "b.ckpt")),
        ("hf://A-1/b.c_d", ("A-1/b.c_d", None, None)),
    ],
)
def test_an_address_names_a_repository_a_revision_and_a_file(text, parts):
    found = Address.parse(text)
    assert (found.repo, found.revision, found.file) == parts
    assert str(found) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://a", "hf://a/", "hf:///a/b", "hf://a/b@", "hf://a//b", "hf://a/b/../c", "hf://../a", "hf://./a/b",
     "hf://a/b c", "hf://a/b?x=1", "hf://-a/b", "HF://a/b", "hf://a/b@v1@v2", "hf://a/b/c//d"],
)  # fmt: skip
def test_what_is_no_address_is_one_line_that_shows_it(text):
    with pytest.raises(Event2VecError) as wrong:
        Address.parse(text)
    assert str(wrong.value) == f"'{text}' is not an address; expected hf://OWNER/NAME or with @REVISION"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("hf://a/b", True), ("a/b", False), ("https://hub/a", False), (Path("hf://a/b"), False), (None, False)],
)
def test_only_text_that_begins_with_the_scheme_is_on_the_hub(path, expected):
    assert is_on_hub(path) is expected


def test_paths_of_this_machine_are_given_back_as_they_are(tmp_path):
    assert fetch_folder(tmp_path, ["x"]) == tmp_path
    assert fetch_file(str(tmp_path / "a")) == tmp_path / "a"


class Api:
    """In the place of huggingface_hub's: files in the layout of its cache, and each new download finds a new commit."""

    def __init__(self, root):
        self.root, self.asked, self.commits = root, [], 0

    def model_info(self, repo, revision=None):
        self.asked.append(("info", repo, revision))

    def hf_hub_download(self, repo, file, revision=None, **settings):
        self.asked.append((file, repo, revision, settings))
        if revision is None or not revision.startswith("commit"):
            self.commits += 1
            revision = f"commit{self.commits}"
        path = self.root / "snapshots" / revision / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return str(path)


@pytest.fixture
def api(tmp_path, monkeypatch):
    api = Api(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    return api


@pytest.mark.parametrize("files", [("a.json", "b.st"), ("deep/er/a.json", "b.st")])
def test_all_files_are_of_the_commit_of_the_first(api, files):
    """Somebody pushes between two downloads: weights of one network beside the sizes of another would be wrong."""
    paths = _fetch(Address("anna/g", "main"), files)
    assert [path.relative_to(api.root / "snapshots/commit1").as_posix() for path in paths] == list(files)
    assert api.asked == [
        ("info", "anna/g", "main"),
        (files[0], "anna/g", "main", {}),
        (files[1], "anna/g", "commit1", {}),
    ]


def test_a_folder_and_a_file_are_asked_for_by_name(api):
    assert fetch_folder("hf://anna/g", ["a.json", "b.st"]) == api.root / "snapshots/commit1"
    assert fetch_file("hf://anna/g@v1/deep/c.ckpt") == api.root / "snapshots/commit2/deep/c.ckpt"
    with pytest.raises(FileError, match=r"^hf://anna/g/a\.json: names a file, expected a repository with a and b$"):
        fetch_folder("hf://anna/g/a.json", ["a", "b"])
    with pytest.raises(
        FileError, match=r"^hf://anna/g@v1: names a repository, expected one of its files: hf://anna/g@v1/"
    ):
        fetch_file("hf://anna/g@v1")


def test_an_earlier_download_is_used_only_where_the_hub_cannot_be_reached_and_with_a_word(api, monkeypatch):
    def fail(error):
        def model_info(*_, **__):
            raise error

        monkeypatch.setattr(api, "model_info", model_info)

    fail(ConnectionError("no route"))
    with pytest.warns(match=r"^hf://anna/g@v1: the Hub cannot be reached; using what was downloaded earlier$"):
        _fetch(HERE, ["a"])
    assert api.asked == [("a", "anna/g", "v1", {"local_files_only": True})]
    fail(ValueError("odd"))
    with pytest.raises(FileError, match=r"^hf://anna/g@v1: huggingface_hub fails: ValueError: odd$"):
        _fetch(HERE, ["a"])

    def nothing(*_, **__):
        raise errors.LocalEntryNotFoundError("not here")

    fail(TimeoutError())
    monkeypatch.setattr(api, "hf_hub_download", nothing)
    with pytest.raises(
        Unreachable, match=r"^hf://anna/g@v1: the Hub cannot be reached\. Check the network connection$"
    ):
        _fetch(HERE, ["a"])


def refusal(status):
    request = SimpleNamespace(url="https://hub", method="GET")
    response = SimpleNamespace(status_code=status, headers={}, request=request)
    error = errors.HfHubHTTPError.__new__(errors.HfHubHTTPError)
    Exception.__init__(error, f"{status}\n of the \x1b[2J Hub")
    error.response = response
    return error


@pytest.mark.parametrize(
    ("status", "problem", "later"),
    [
        (401, "needs a token that is valid. Run: hf auth login", False),
        (403, "your token may not write here. Run: hf auth login, with a token that may write", False),
        (418, "the Hub refuses: 418 of the \\x1b[2J Hub", False),
        (500, "the Hub answers with error 500. Try again later", True),
        (503, "the Hub answers with error 503. Try again later", True),
    ],
)
def test_each_refusal_has_its_remedy_and_only_a_broken_hub_may_answer_later(status, problem, later):
    found = _explain(refusal(status), HERE, "a")
    assert str(found) == f"hf://anna/g@v1: {problem}"
    assert isinstance(found, Unreachable) == later


def named(name, module="builtins"):
    return type(name, (Exception,), {"__module__": module})("two\nlines")


@pytest.mark.parametrize("module", ["httpx", "requests.exceptions", "urllib3.util", "httpcore._sync"])
def test_errors_of_what_carries_the_answers_are_a_network_that_cannot_be_reached(module):
    assert isinstance(_explain(named("ConnectError", module), HERE, "a"), Unreachable)
    other = _explain(named("ConnectError", "mine"), HERE, "a")
    assert not isinstance(other, Unreachable)
    assert str(other) == "hf://anna/g@v1: huggingface_hub fails: ConnectError: two lines"


def test_a_failed_upload_is_explained_by_its_cause_and_a_full_cache_by_itself():
    with pytest.raises(Unreachable), one_line_errors(HERE):
        raise RuntimeError("upload failed") from ConnectionError("no route")
    with pytest.raises(FileError, match="huggingface_hub fails: RuntimeError: alone"), one_line_errors(HERE):
        raise RuntimeError("alone")
    full = OSError(28, "No space left on device", "/cache/x")
    with pytest.raises(OSError, match="No space left") as kept, one_line_errors(HERE):
        raise full
    assert kept.value is full
    with pytest.raises(Event2VecError, match=r"^ours$"), one_line_errors(HERE):
        raise Event2VecError("ours")


@pytest.mark.parametrize(
    ("verb", "arguments"), [("predict", ("x.raw",)), ("evaluate", ()), ("export", ()), ("probe", ()), ("figures", ())]
)
def test_an_address_that_cannot_be_one_is_refused_before_anything_is_asked(verb, arguments, api, capsys):
    assert run(verb, "hf://anna", *arguments) == 2
    said = "event2vec: 'hf://anna' is not an address; expected hf://OWNER/NAME or with @REVISION\n"
    assert capsys.readouterr().err == said
    assert api.asked == []
