"""Cut a long recording into files, one for each window."""

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from event2vec.data.windows import Windows, seconds
from event2vec.errors import FileError
from event2vec.io import WRITERS, write_events
from event2vec.io.chunks import decode_chunks
from event2vec.io.recording import Reading, ReadingOptions
from event2vec.machine.atomic import whole_folder
from event2vec.progress import SILENT, Progress


@dataclass(frozen=True)
class CutRecording:
    """The files of a recording, and what did not become one."""

    folder: Path
    files: int
    left_out: int  # windows with too few events


def cut_recording(
    path: str | Path,
    folder: str | Path,
    windows: Windows,
    *,
    suffix: str = ".npz",
    overwrite: bool = False,
    progress: Progress = SILENT,
    **reading: Unpack[ReadingOptions],
) -> CutRecording:
    """Write the windows of a recording to FOLDER/<its name>/, which appears once it is complete. Memory stays bounded.

        cut_recording("wave.raw", "my_recordings/wave", Windows(window=0.1))

    A sub-folder of its own keeps its windows together when training draws test recordings. `reading` holds the options
    of `read_events`.
    """
    path = Path(path)
    target = Path(folder) / path.stem
    if suffix not in WRITERS:
        raise FileError(path, f"cannot be written as '{suffix}', expected one of {', '.join(WRITERS)}")
    if target.exists() and not overwrite:
        raise FileError(target, "exists already. Choose another folder, or set `overwrite`")
    files, numbers = 0, 0
    with progress.stage(f"cutting {path.name}"), whole_folder(target, overwrite) as work:
        for window in windows.over(decode_chunks(path, Reading.of(**reading))):
            if len(window.events) >= windows.min_events:
                write_events(work / f"{window.number:06d}_{seconds(window.start)}s{suffix}", window.events)
                files += 1
            numbers = window.number + 1
            progress.advance(numbers)
        if files == 0:
            raise FileError(path, f"has no window with {windows.min_events:,} events or more, so nothing is written")
    return CutRecording(target, files, numbers - files)
