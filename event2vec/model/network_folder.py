"""Where a network is: in a folder that `save_model` wrote, or in that of a run. Without torch: checks are fast."""

import shlex
from os import PathLike
from pathlib import Path

from event2vec.errors import FileError
from event2vec.hub import fetch_folder

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
A_NETWORK = "a run or a folder with a saved network"
BEST, NETWORK, RECIPE = "best", "model", "recipe.yaml"  # in the folder of a run


def check_text_path(folder: Path) -> None:
    """Refuse folder names that safetensors and TensorBoard cannot use, before hours of training and not after."""
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError:
        raise FileError(
            folder, "is not UTF-8 text, as the folder of a saved network must be. Choose another name"
        ) from None


def open_folder(folder: str | PathLike[str]) -> Path:
    """The folder of a run or a network; the network at an address (hf://OWNER/NAME) is downloaded first."""
    return fetch_folder(folder, (CONFIG, WEIGHTS))


def holds_network(folder: Path) -> bool:
    return any((place / WEIGHTS).is_file() for place in _places(folder))


def _places(folder: Path) -> tuple[Path, ...]:
    """Where a network may be, the one to use first: in a run that of the best epoch, else that of the last."""
    return folder, folder / BEST, folder / NETWORK


def find_model(folder: Path) -> Path:
    """The folder of the network itself: the one given, or in a run `best`, or `model` if it has no best."""
    for candidate in _places(folder):
        if (candidate / WEIGHTS).is_file():
            return candidate
    if not folder.exists():
        raise FileError(folder, f"does not exist, expected {A_NETWORK}")
    if (folder / RECIPE).is_file():
        command = f"event2vec train --resume {shlex.quote(str(folder))}"
        raise FileError(folder, f"has no network yet. Resume its training: {command}")
    if folder.is_file():
        raise FileError(folder, f"is a file, expected {A_NETWORK}. event2vec.runtime.load opens exported files")
    raise FileError(folder, f"holds no network, expected {WEIGHTS} in it or in its folder '{BEST}' or '{NETWORK}'")
