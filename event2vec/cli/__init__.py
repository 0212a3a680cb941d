"""The command line: one file for each verb. The only code that prints or exits."""

import os
import sys
import warnings
from importlib import import_module
from typing import Any

from event2vec import __version__
from event2vec.cli.parser import LONGEST, Parser
from event2vec.cli.printing import say
from event2vec.errors import Event2VecError, describe
from event2vec.names import nearest, shorten, shown

DEBUG = "EVENT2VEC_DEBUG"  # set, it shows where in the program an unexpected error came from

# In the order in which a new user meets them. A verb's file has `add_arguments` and `run`, and imports nothing heavy.
# It may have `check`, which refuses a wrong call before torch is loaded, and `COMPUTES = False` if it needs no torch.
GROUPS = {
    "try it": {
        "demo": "see it work: no data, no camera, no GPU needed",
    },
    "your data": {
        "info": "what is in a recording of any format",
        "view": "see a recording: a page with the event player, or an animation",
        "convert": "write a recording in another format, whole or in part",
        "cut": "cut a long recording into windows, one file per window",
        "prepare": "turn a data set into a store that training reads",
        "copy": "copy a store in shards, to a folder or to s3://, gs:// and others",
        "cache": "list the stores that training prepared, and remove them",
    },
    "learn": {
        "train": "train a classifier on a data set or on your own recordings",
        "pretrain": "train without labels, by hiding events",
        "push": "share a trained network on the Hugging Face Hub",
        "import": "convert a checkpoint published by the authors into a network folder",
    },
    "look": {
        "predict": "classify recordings, or whole folders of them",
        "export": "write a network as a file for a device: ONNX, OpenVINO or torch",
        "live": "classify a camera, a network stream or a recording while it plays",
        "figures": "draw what a network has learnt",
        "report": "one page about a run: how good, how robust, how fast, and what it looks at",
    },
    "measure": {
        "evaluate": "how good a trained network is, class by class",
        "probe": "linear probing: test a frozen network's features on another data set",
        "compare": "train other networks on your data too, and compare them",
        "experiment": "repeat a table of the paper on your data",
        "benchmark": "measure speed and memory against the alternatives on this machine",
    },
}
VERBS = {verb: summary for group in GROUPS.values() for verb, summary in group.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. 0: done; 1: a fault of ours; 2: a wrong call or bad input; 130: stopped with Ctrl-C."""
    warnings.showwarning = _show_warning
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return status
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
        return _explain_fault(error)


def _run(arguments: list[str]) -> int:
    if not arguments:
        print(first_screen(), file=sys.stderr)
        return 2
    verb, *rest = arguments
    if verb in ("-h", "--help", "--version"):
        print(f"event2vec {__version__}" if verb == "--version" else first_screen())
        return 0
    module = load_verb(verb)
    options = build_parser(verb).parse(rest)
    if hasattr(module, "check"):
        module.check(options)
    import numpy  # noqa: F401  # torch would load it too, but swallow Ctrl-C and continue with half of it

    if getattr(module, "COMPUTES", True):
        from event2vec.machine.cpu import tune_cpu

        tune_cpu()
    return int(module.run(options) or 0)


def first_screen() -> str:
    """What `event2vec --help` shows: every verb in one line, in groups."""
    lines = [
        "Read event-camera recordings the way a language model reads words.",
        "",
        "usage: event2vec VERB [options]",
    ]
    for title, verbs in GROUPS.items():
        lines += ["", title, *(f"  {verb:12}{summary}" for verb, summary in verbs.items())]
    return "\n".join([*lines, "", "'event2vec VERB --help' explains a verb. Start with 'event2vec demo'."])


def load_verb(verb: str) -> Any:
    """The file of a verb."""
    if verb not in VERBS:
        kind = "option" if verb.startswith("-") else "verb"
        raise Event2VecError(f"unknown {kind} {shown(verb)}{nearest(verb, VERBS)}. See 'event2vec --help'")
    return import_module(f"event2vec.cli.{verb}")


def build_parser(verb: str) -> Parser:
    module = load_verb(verb)
    parser = Parser(verb, module.__doc__)
    module.add_arguments(parser)
    return parser


def _explain_fault(error: Exception) -> int:
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        say("event2vec: there is not enough memory for this. A smaller model, batch or recording needs less")
        return 2
    what = shorten(f"{type(error).__name__}: {error}".partition("\n")[0], LONGEST)
    remedy = f"Please report it, together with the output of the same command with {DEBUG}=1 set"
    say(f"event2vec: this should not happen: {what}. {remedy}")
    return 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"event2vec: warning: {message}")
