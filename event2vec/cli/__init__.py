"""The command line: one file for each verb. The only code that prints or exits."""

import difflib
import math
import os
import re
import sys
import warnings
from argparse import ArgumentTypeError
from importlib import import_module
from typing import Any, ClassVar, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from event2vec import __version__
from event2vec.names import printable, shorten, shown

DEBUG = "EVENT2VEC_DEBUG"  # set, it shows where in the program an unexpected error came from

# In the order in which a new user meets them. A verb's file has `add_arguments` and `run`, and imports nothing heavy.
VERBS = {
    "demo": "see it work: no data, no camera, no GPU needed",
    "info": "what is in a recording of any format",
    "convert": "write a recording in another format, whole or in part",
    "prepare": "turn a data set into a store that training reads",
    "train": "train a classifier on a data set or on your own recordings",
    "pretrain": "train without labels, by hiding events",
    "import": "convert a checkpoint published by the authors into a network folder",
    "evaluate": "how good a trained network is, class by class",
    "predict": "classify recordings",
    "experiment": "repeat a table of the paper on your data",
    "probe": "what a network's features tell a linear classifier about other data",
    "figures": "draw what a network has learnt",
    "report": "one page about a run: how good, how robust, how fast, and what it looks at",
    "benchmark": "measure speed and memory against the alternatives on this machine",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. 0: done; 1: a fault of ours; 2: a wrong call or bad input; 130: stopped with Ctrl-C."""
    from event2vec.cli.printing import say
    from event2vec.cpu import tune_cpu
    from event2vec.errors import Event2VecError, describe

    warnings.showwarning = _show_warning
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        options = build_parser(arguments[0] if arguments else "").parse(arguments)
        tune_cpu()
        status = import_module(f"event2vec.cli.{options.verb}").run(options[options.verb])
        sys.stdout.flush()
        return int(status or 0)
    except Event2VecError as error:
        say(f"event2vec: {error}")
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a folder that cannot be written
        say(f"event2vec: {describe(error)}")
        return 2
    except KeyboardInterrupt:
        say("event2vec: stopped")
        return 130
    except Exception as error:
        if DEBUG in os.environ:
            raise
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            say("event2vec: there is not enough memory for this. A smaller model, batch or recording needs less")
            return 2
        what = shorten(f"{type(error).__name__}: {error}".partition("\n")[0], 300)
        say(
            f"event2vec: this should not happen: {what}. Please report it, with what {DEBUG}=1 in the environment shows"
        )
        return 1


class Help(DefaultHelpFormatter):
    """Help as the verbs' files write it, line by line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in text.strip().splitlines())

    def _get_help_string(self, action: Any) -> str:
        """jsonargparse says '(default: null)' where there is none, and names the functions that read options."""
        if action.default is None:
            return str(action.help)
        return str(super()._get_help_string(action)).replace("type: %(type)s, ", "")


class Parser(ArgumentParser):
    """A wrong call gets one line, and the place where the right ones are explained."""

    verb: ClassVar[str] = ""  # that was called
    options: ClassVar[list[str]] = []  # of that verb

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, formatter_class=Help, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> Any:
        """jsonargparse would read numbers as YAML, in which few characters make a list larger than memory."""
        if settings.get("type") in (int, float):
            settings["type"] = whole_number if settings["type"] is int else number
        return super().add_argument(*names, **settings)

    def parse(self, arguments: list[str]) -> Namespace:
        """jsonargparse takes --data.clustering, a slip, for a part of --data; here it is an unknown option."""
        for name in (argument.partition("=")[0] for argument in arguments):
            if name.startswith("--") and "." in name and name not in Parser.options:
                self.error(f"unrecognized arguments: {name}")
        return self.parse_args(arguments)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        message = " ".join(message.split()).rstrip(".").removeprefix("argument ")
        verb = Parser.verb
        # jsonargparse puts the verb before its own names: prepare.out is OUT or --out to the person who types it.
        if verb and re.search(rf"(required: |Parser key \"){verb}\.", message):
            message = message.replace(f"{verb}.", "")
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            near = difflib.get_close_matches(unknown[1], Parser.options, n=1)
            message = f"unknown option {unknown[1]}" + (f", did you mean {near[0]}?" if near else "")
        end = "" if message.endswith("?") else "."
        message = printable(shorten(message, 300))
        print(f"event2vec: {message}{end} See 'event2vec {verb}{' ' if verb else ''}--help'", file=sys.stderr)
        sys.exit(2)


def whole_number(text: str | int) -> int:
    """The type of an option. Numbers come here too: jsonargparse checks once more what was read."""
    if not re.fullmatch(r"[-+]?\d{1,15}", str(text).strip()):
        raise ArgumentTypeError(f"must be a whole number, got {shown(text)}")
    return int(text)


def number(text: str | float) -> float:
    try:
        if math.isfinite(float(text)):
            return float(text)
    except ValueError:
        pass
    raise ArgumentTypeError(f"must be a number, got {shown(text)}")


def build_parser(wanted: str) -> Parser:
    """The parser of all verbs; only the one that is wanted loads its arguments, so that --help is quick."""
    Parser.verb, Parser.options = wanted if wanted in VERBS else "", []
    parser = Parser(
        prog="event2vec",
        description="Read event-camera recordings the way a language model reads words.",
        epilog="'event2vec VERB --help' explains a verb. Start with 'event2vec demo'.",
        version=__version__,
    )
    verbs = parser.add_subcommands(dest="verb", metavar="VERB", required=True, title="verbs")
    for verb, summary in VERBS.items():
        command = Parser()
        if verb == wanted:
            module = import_module(f"event2vec.cli.{verb}")
            command = Parser(description=module.__doc__)
            module.add_arguments(command)
            Parser.options = list(command._option_string_actions)
        verbs.add_subcommand(verb, command, help=summary)
    return parser


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from event2vec.cli.printing import say

    say(f"event2vec: warning: {message}")
