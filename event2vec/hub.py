"""Files on the Hugging Face Hub by their address, hf://OWNER/NAME, downloaded once and then read from its cache.

`hf://OWNER/NAME@REVISION` is one state of a repository (a branch, a tag or a commit), `hf://OWNER/NAME/FILE` one of its
files. Nothing that is downloaded is run or unpickled here.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from event2vec.errors import Event2VecError, Event2VecWarning, FileError, MissingExtra, Unreachable
from event2vec.names import excerpt, shown

SCHEME = "hf://"
PART = r"[A-Za-z0-9][\w.-]*"
ADDRESS = re.compile(rf"{SCHEME}({PART}/{PART})(?:@([\w.-]+))?(?:/([\w./-]+))?/?")
# What the libraries that huggingface_hub talks through call a network that does not answer.
TRANSPORTS = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")


@dataclass(frozen=True)
class Address:
    """What an address names."""

    repo: str  # OWNER/NAME
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        found = ADDRESS.fullmatch(text)
        if not found or {"", ".", ".."} & {*text.removeprefix(SCHEME).rstrip("/").split("/")}:
            raise Event2VecError(f"{shown(text)} is not an address; expected {SCHEME}OWNER/NAME or with @REVISION")
        return cls(*found.groups())

    @classmethod
    def to_push(cls, repo: str, name: str = "repo") -> "Address":
        """A whole repository, as OWNER/NAME or as its address; errors call it `name`."""
        if not re.fullmatch(f"{PART}/{PART}", repo.removeprefix(SCHEME)):
            raise Event2VecError(f"{name} must be OWNER/NAME, got {shown(repo)}")
        return cls(repo.removeprefix(SCHEME))

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{self.repo}{revision}{f'/{self.file}' if self.file else ''}"


def is_on_hub(path: object) -> bool:
    return isinstance(path, str) and path.startswith(SCHEME)


def fetch_folder(path: str | PathLike[str], files: Sequence[str]) -> Path:
    """The folder itself, or for an address the local folder with these files of the repository, all of one commit."""
    if not is_on_hub(path):
        return Path(path)
    address = Address.parse(str(path))
    if address.file:
        raise FileError(str(address), f"names a file, expected a repository with {' and '.join(files)}")
    return _fetch(address, files)[0].parent


def fetch_file(path: str | PathLike[str]) -> Path:
    """The file itself, or for an address a local copy of it."""
    if not is_on_hub(path):
        return Path(path)
    address = Address.parse(str(path))
    if not address.file:
        raise FileError(str(address), f"names a repository, expected one of its files: {address}/FILE")
    return _fetch(address, [address.file])[0]


def _fetch(address: Address, files: Sequence[str]) -> list[Path]:
    """Local copies of files. Where the Hub cannot be reached, those of an earlier download, with a warning."""
    try:
        _check_reachable(address)
        return _download(address, files)
    except Unreachable as problem:
        try:
            paths = _download(address, files, local_files_only=True)
        except Event2VecError:
            raise problem from None
        warnings.warn(
            f"{address}: {problem.problem.partition('.')[0]}; using what was downloaded earlier",
            Event2VecWarning,
            stacklevel=3,
        )
        return paths


def _check_reachable(address: Address) -> None:
    """Ask for the repository: a download alone would silently fall back on old files."""
    library = import_library()
    with one_line_errors(address):
        library.HfApi().model_info(address.repo, revision=address.revision)


def _download(address: Address, files: Sequence[str], **settings: Any) -> list[Path]:
    """The first file decides on the commit, so that none changes between two of them."""
    api, revision, paths = import_library().HfApi(), address.revision, []
    for file in files:
        with one_line_errors(address, file):
            paths.append(Path(api.hf_hub_download(address.repo, file, revision=revision, **settings)))
        depth = len(Path(file).parts)
        revision = paths[-1].parents[depth - 1].name
    return paths


def import_library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("the Hugging Face Hub", "hub") from None
    return huggingface_hub


@contextmanager
def one_line_errors(address: Address, file: str = "") -> Iterator[None]:
    """Errors of huggingface_hub as ours: what was asked for, what was found, and the remedy."""
    try:
        yield
    except Event2VecError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else error  # as a failed upload wraps it
        if isinstance(error, OSError) and error.filename:  # of this machine: its cache cannot be written
            raise
        raise _explain(cause or error, address, file) from None


def _explain(error: BaseException, address: Address, file: str) -> FileError:
    from huggingface_hub import errors

    kinds: dict[type[BaseException], str] = {  # the narrow ones first
        errors.GatedRepoError: "asks for its terms to be accepted. Open its page, then run: hf auth login",
        errors.RepositoryNotFoundError: "does not exist, or is private. Check the name, or run: hf auth login",
        errors.RevisionNotFoundError: f"has no revision {address.revision}. Check its branches, tags and commits",
        errors.LocalEntryNotFoundError: "",
        errors.EntryNotFoundError: f"has no file {file}",
        errors.OfflineModeIsEnabled: "",
        errors.LocalTokenNotFoundError: "needs a token. Run: hf auth login",
        errors.HFValidationError: f"is not an address: {excerpt(error, 120)}",
    }
    for kind, problem in kinds.items():
        if isinstance(error, kind):
            return FileError(str(address), problem) if problem else Unreachable(str(address), _no_network(error))
    if isinstance(error, errors.HfHubHTTPError):
        return _refused(str(address), error)
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.split(".")[0] in TRANSPORTS:
        return Unreachable(str(address), _no_network(error))
    return FileError(str(address), f"huggingface_hub fails: {type(error).__name__}: {excerpt(error, 120)}")


def _no_network(error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return "the network is not used, as HF_HUB_OFFLINE is set. Unset it"
    return "the Hub cannot be reached. Check the network connection"


def _refused(place: str, error: Any) -> FileError:
    """The error for a request that the Hub refused."""
    status = getattr(error.response, "status_code", 0)
    if status == 401:
        return FileError(place, "needs a token that is valid. Run: hf auth login")
    if status == 403:
        return FileError(place, "your token may not write here. Run: hf auth login, with a token that may write")
    if status >= 500:
        return Unreachable(place, f"the Hub answers with error {status}. Try again later")
    return FileError(place, f"the Hub refuses: {excerpt(error, 160)}")
