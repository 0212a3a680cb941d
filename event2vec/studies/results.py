"""The result of one run of an experiment, saved as result.json in the run's folder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from event2vec.documents import read_json, write_json
from event2vec.errors import FileError
from event2vec.evaluation.accuracy import Repeated
from event2vec.evaluation.speed import Figure, Speed


@dataclass(frozen=True)
class Timed:
    """What was measured besides the accuracy, on some of the test recordings."""

    recordings: int
    clustering: Figure | None = None  # milliseconds per recording
    speed: Speed | None = None
    memory: float | None = None  # megabytes that a process needs for the network and one answer, on a CPU

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"timed_recordings": self.recordings}
        if self.clustering is not None:
            found["clustering_ms"] = [self.clustering.mean, self.clustering.deviation]
        if self.speed is not None:
            found["speed"] = self.speed.facts()
        if self.memory is not None:
            found["memory_mb"] = self.memory
        return found

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Timed":
        clustering, speed, memory = (facts.get(name) for name in ("clustering_ms", "speed", "memory_mb"))
        return cls(
            int(_number(facts["timed_recordings"])),
            None if clustering is None else Figure(*_numbers(clustering)),
            None if speed is None else Speed.from_facts(speed),
            None if memory is None else _number(memory),
        )


@dataclass(frozen=True)
class RunResult(Repeated):
    """Accuracy and size of a trained network, and how long its training took."""

    accuracies: tuple[float, ...]  # one per draw of the events
    recordings: int
    parameters: int
    seconds: float
    epochs: int
    timed: Timed | None = None

    def write(self, path: Path) -> None:
        facts = {"accuracy": self.accuracy, "accuracies": list(self.accuracies), "recordings": self.recordings}
        facts |= {"interval": self.interval, "parameters": self.parameters, "seconds": self.seconds}
        facts["epochs"] = self.epochs
        write_json(path, facts | {"timed": self.timed.facts() if self.timed else {}})

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """What `write` wrote."""
        facts = read_json(path)
        try:
            return cls._from_facts(facts)
        except (LookupError, TypeError, ValueError, AttributeError):
            problem = "is not the result of an experiment. Remove it to evaluate the run again"
            raise FileError(path, problem) from None

    @classmethod
    def _from_facts(cls, facts: Mapping[str, Any]) -> "RunResult":
        timed = Timed.from_facts(facts["timed"]) if facts["timed"] else None
        names = ("recordings", "parameters", "seconds", "epochs")
        recordings, parameters, seconds, epochs = (_number(facts[name]) for name in names)
        found = cls(_numbers(facts["accuracies"]), int(recordings), int(parameters), seconds, int(epochs), timed)
        if not found.accuracies or not math.isclose(_number(facts["accuracy"]), found.accuracy):
            raise ValueError("the accuracy is not the mean over the draws")
        found.interval  # noqa: B018  # which wants some recordings, and a share of them
        return found


def _numbers(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise TypeError("not a list")
    return tuple(map(_number, values))


def _number(value: Any) -> float:
    """Only a real number: float() would accept text too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)
