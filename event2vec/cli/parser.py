"""How verbs parse their options: argparse, with help as written in the verbs' files and one line for a wrong call."""

import math
import os
import re
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from event2vec.errors import Event2VecError
from event2vec.hub import Address, is_on_hub
from event2vec.names import nearest, shorten, shown
from event2vec.training.layout import Layout

MISSING = "the following arguments are required: "  # how argparse says it
LONGEST = 300  # characters of what is wrong with a call


class Help(HelpFormatter):
    """Keeps the line breaks of descriptions, and shows the default of each option that has one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in text.strip().splitlines())

    def _get_help_string(self, action: Action) -> str:
        has_default = action.option_strings and action.default is not None and action.nargs != 0
        return f"{action.help} (default: %(default)s)" if has_default else str(action.help)


class Parser(ArgumentParser):
    """The options of one verb."""

    def __init__(self, verb: str, explanation: str | None) -> None:
        super().__init__(f"event2vec {verb}", description=explanation, formatter_class=Help, allow_abbrev=False)
        self.register("type", int, whole_number)
        self.register("type", float, number)

    def parse(self, arguments: list[str]) -> Namespace:
        """Report unknown options before missing ones: a misspelt option is both."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        for name in (argument.partition("=")[0] for argument in arguments[:end] if argument.startswith("--")):
            if name not in self._option_string_actions:
                self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
        options, strangers = self.parse_known_args(arguments)
        if strangers and re.fullmatch("-[A-Za-z].*", strangers[0]):
            self.error(f"unknown option {shown(strangers[0])}")
        if strangers:
            self.error(f"unexpected argument {shown(strangers[0])}; put options after the other arguments")
        return options

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            expected = f"must be one of {', '.join(names)}, got {shown(value)}"
            raise ArgumentError(action, expected + nearest(str(value), names))

    def error(self, message: str) -> NoReturn:
        if message.startswith(MISSING):
            message = self._explain_missing(message.removeprefix(MISSING).split(", "))
        said = shorten(" ".join(message.split()).removeprefix("argument "), LONGEST)
        raise Event2VecError(f"{said}. See '{self.prog} --help'")

    def _explain_missing(self, names: list[str]) -> str:
        """What each of these arguments is, as in the help."""
        known = {
            "/".join(action.option_strings) or str(action.metavar or action.dest): action for action in self._actions
        }
        return "; ".join(f"{name} is required: {known[name].help}" for name in names)


def whole_number(text: str) -> int:
    """Like int(), but without underscores or thousands of digits."""
    if not re.fullmatch(r"[-+]?[0-9]{1,15}", text.strip()):
        raise ArgumentTypeError(f"must be a whole number, got {shown(text)}")
    return int(text)


def number(text: str) -> float:
    try:
        if math.isfinite(float(text)):
            return float(text)
    except ValueError:
        pass
    raise ArgumentTypeError(f"must be a number, got {shown(text)}")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a count."""

    def read(text: str) -> int:
        found = whole_number(text)
        if found < least:
            raise ArgumentTypeError(f"must be at least {least}, got {found}")
        return found

    return read


def positive(text: str) -> float:
    """The type of an option that is a length of time."""
    found = number(text)
    if found <= 0:
        raise ArgumentTypeError(f"must be above 0, got {found:g}")
    return found


def share(text: str) -> float:
    """The type of an option that is a part of a whole."""
    found = number(text)
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"must be from 0 to 1, got {found:g}")
    return found


def existing(expected: str) -> Callable[[str], str]:
    """The type of an option that names an existing file or folder; checked before anything heavy is loaded."""

    def read(path: str) -> str:
        if not os.path.exists(path) and "://" not in path:  # an address is tried when it is opened
            raise ArgumentTypeError(f"{shorten(path)} does not exist, expected {expected}")
        return path

    return read


def existing_or(word: str, expected: str) -> Callable[[str], str]:
    """The same, or a word with a meaning of its own."""

    def read(path: str) -> str:
        return path if path == word else existing(expected)(path)

    return read


def existing_or_address(expected: str) -> Callable[[str], str]:
    """Like `existing`, for what may also be on the Hugging Face Hub; an address is only read here, not asked for."""

    def read(path: str) -> str:
        if not is_on_hub(path):
            return existing(expected)(path)
        return str(Address.parse(path))

    return read


def existing_run(expected: str) -> Callable[[str], str]:
    """The type of an option that names a run or a saved network; another folder is refused before torch is loaded."""

    def read(path: str) -> str:
        found = existing_or_address(expected)(path)
        if not is_on_hub(found):
            Layout(Path(found)).check_run()
        return found

    return read


def existing_predictor(expected: str) -> Callable[[str], str]:
    """The same for what answers: a run, a saved network or an exported file, which is checked when it is opened."""

    def read(path: str) -> str:
        return (existing_run if os.path.isdir(path) else existing_or_address)(expected)(path)

    return read


def file_to_write(path: str) -> str:
    """The type of an option that names a file to write; a folder is refused before any work."""
    if os.path.isdir(path):
        raise ArgumentTypeError(f"{shorten(path)} is a folder, expected the name of a file to write")
    return path
