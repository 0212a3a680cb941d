"""What goes wrong for a user. Each message names the file, what was found, what was expected and the remedy."""

from pathlib import Path

from event2vec.names import printable


class Event2VecError(Exception):
    """Anything that the user can mend: bad input, a wrong call, a missing extra."""

    def __str__(self) -> str:
        return printable(super().__str__())


class FileError(Event2VecError):
    """A file or folder that cannot be used."""

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(path, problem)  # both kept, so that the error survives a trip between processes
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.problem}")


class MissingExtra(Event2VecError):
    """An optional package that this input needs."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(purpose, extra)
        self.purpose = purpose
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.purpose} needs an optional package. Run: pip install 'event2vec[{self.extra}]'"


class Event2VecWarning(UserWarning):
    """Something was left out or put in order; the result can be used."""
