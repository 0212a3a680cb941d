"""What a result may depend on besides its recipe: versions, machine, command."""

import platform
import sys
from pathlib import Path
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
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "command": " ".join(["event2vec", *sys.argv[1:]]),
    }


def _processor() -> str:
    """The name of the CPU, which Python's platform does not know on Linux."""
    about = Path("/proc/cpuinfo")
    if about.exists():
        for line in about.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
