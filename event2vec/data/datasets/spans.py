"""Recordings that are parts of longer ones, as label tables say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from event2vec.data.datasets.dataset import Dataset, file_fingerprint
from event2vec.data.labels import Span
from event2vec.errors import Event2VecError, FileError
from event2vec.io import Recording, read_recording
from event2vec.sensor import Sensor


@dataclass(frozen=True)
class SpanDataset(Dataset):
    """One recording for each labelled span of long files."""

    paths: tuple[Path, ...]
    spans: tuple[Span, ...]
    groups: tuple[str, ...]
    problems: tuple[str, ...] = ()  # of each: "", or why its labels cannot be used; none at all: all can
    sensor: Sensor | None = None  # None: the one that each file names
    columns: str | None = None
    time_unit: str | None = None

    @classmethod
    def of(
        cls,
        name: str,
        split: str,
        classes: tuple[str, ...],
        base: Path,
        found: Sequence[tuple[Path, Span]],
        **options: Any,
    ) -> "SpanDataset":
        """From files with their spans; those of one file must follow each other."""
        paths, spans = tuple(path for path, _ in found), tuple(span for _, span in found)
        sources = tuple(f"{path.relative_to(base)} [{span}]" for path, span in found)
        labels = tuple(classes.index(span.name) for span in spans)
        return cls(name, split, classes, sources, labels, paths, spans, **options)

    def read(self, index: int) -> Recording:
        if self.problems and self.problems[index]:
            raise Event2VecError(self.problems[index])
        whole = self._whole(index)
        start, stop = self.spans[index].since(whole.start)
        part = whole.events.between(start, stop)
        if len(part) == 0:
            found = f"has no events from {start + whole.start} to {stop + whole.start} us on its clock"
            raise FileError(self.paths[index], f"{found}, where its labels name a class")
        first = int(whole.events.t[whole.events.before(start)])
        return replace(whole, events=part, start=whole.start + first)

    def unused(self, index: int) -> int:
        """Microseconds of a file that have no label, counted with its first span."""
        if self.is_in_file_of_last(index) or (self.problems and self.problems[index]):
            return 0
        whole = self._whole(index)
        labelled, later = 0, index
        while later < len(self) and self.paths[later] == self.paths[index]:
            start, stop = self.spans[later].since(whole.start)
            labelled += max(min(stop, whole.events.duration) - max(start, 0), 0)
            later += 1
        return whole.events.duration - labelled

    def _whole(self, index: int) -> Recording:
        return _read_whole(self.paths[index], self.sensor, self.columns, self.time_unit)

    def is_in_file_of_last(self, index: int) -> bool:
        return index > 0 and self.paths[index] == self.paths[index - 1]

    def group(self, index: int) -> str:
        return self.groups[index]

    def fingerprint(self, index: int) -> str:
        facts = (self.spans[index], self.problems[index] if self.problems else "")
        return f"{file_fingerprint(self.paths[index])} {facts} {self.sensor} {self.columns} {self.time_unit}"


@lru_cache(maxsize=1)
def _read_whole(path: Path, sensor: Sensor | None, columns: str | None, time_unit: str | None) -> Recording:
    """Cached: the spans of a file are read one after another, by one worker."""
    return read_recording(path, sensor=sensor, columns=columns, time_unit=time_unit)
