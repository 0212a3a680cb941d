"""What a result may depend on besides its recipe: versions, machine, command."""

import platform
import sys
from typing import Any

import torch

from event2vec import __version__


def environment() -> dict[str, Any]:
    """What a result may depend on, and the command that produced it."""
    return {
        "event2vec": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "command": " ".join(["event2vec", *sys.argv[1:]]),
    }
