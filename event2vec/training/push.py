"""Share a network on the Hugging Face Hub, with a page that says how good it is."""

from dataclasses import dataclass
from pathlib import Path

from event2vec.errors import FileError
from event2vec.hub import Address, import_library, one_line_errors
from event2vec.model.checkpoint import load_any_model
from event2vec.model.network_folder import CARD, CONFIG, WEIGHTS, find_model
from event2vec.training.model_card import model_card
from event2vec.training.run import Run


@dataclass(frozen=True)
class Pushed:
    """Where a network is now."""

    address: str  # for load_model
    page: str
    commit: str
    files: tuple[str, ...]


def push(
    run: str | Path | Run,
    repo: str,
    *,
    private: bool = False,
    license_name: str | None = None,
    message: str | None = None,
) -> Pushed:
    """Share the network of a run, or a saved network, on the Hugging Face Hub.

        push("runs/my_recordings", "anna/gestures").address

    The repository OWNER/NAME is made if there is none, `private` or for all to see; a public one is refused where
    `private` is set. It gets the weights, their description, and a page with what the run has measured: accuracy with
    its interval, classes, recipe, calibration and figures. No recording, and no path of this machine. The token is that
    of `hf auth login`, or HF_TOKEN.
    """
    address = Address.to_push(repo)
    run = Run.open(run)
    folder, model, pictures = find_model(run.folder), load_any_model(run.folder), _pictures(run)
    card = model_card(run, model, address.repo, license_name, {file: title for file, (_, title) in pictures.items()})
    content: dict[str, Path | bytes] = {name: folder / name for name in (CONFIG, WEIGHTS)}
    content |= {CARD: card.encode("utf-8")} | {file: path for file, (path, _) in pictures.items()}
    library = import_library()
    with one_line_errors(address):
        api = library.HfApi()
        if not library.get_token():
            raise FileError(str(address), "needs a token that may write. Run: hf auth login, or set HF_TOKEN")
        api.create_repo(address.repo, private=private, exist_ok=True)
        if private and not api.model_info(address.repo).private:
            raise FileError(
                str(address), "exists and is public, so `private` has no effect. Choose another name, or omit it"
            )
        added = [library.CommitOperationAdd(name, data) for name, data in content.items()]
        commit = api.create_commit(address.repo, added, commit_message=message or "Push a network of Event2Vec")
    return Pushed(str(address), f"{api.endpoint}/{address.repo}", commit.oid, tuple(content))


def _pictures(run: Run) -> dict[str, tuple[Path, str]]:
    """Figures that the run has: their name in the repository, where they are and what they show."""
    known = {
        "figures/confusion.png": (run.confusion("test", None), "Confusion matrix of the test recordings"),
        "figures/reliability.png": (run.reliability("test", None), "Reliability: accuracy against confidence"),
        "figures/curves.png": (run.curves, "Loss and accuracy during training"),
    }
    return {name: found for name, found in known.items() if run.is_started and found[0].is_file()}
