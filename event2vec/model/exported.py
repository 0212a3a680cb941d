"""The files of an exported network, by what reads them. Without numpy and torch: `--help` is fast."""

from pathlib import Path
from typing import Literal

Format = Literal["onnx", "openvino", "torch"]  # what a network is exported to
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "openvino": ".xml", "torch": ".pt2"}


def files_of(path: Path) -> tuple[Path, ...]:
    """The files of an exported network, the one to open last: OpenVINO's has its weights beside it."""
    return (path.with_suffix(".bin"), path) if path.suffix.lower() == SUFFIXES["openvino"] else (path,)
