"""Share a trained network on the Hugging Face Hub: its weights, and a page with what was measured of it.

    hf auth login                                         once, with a token that may write
    event2vec push runs/my_recordings anna/gestures
    event2vec predict hf://anna/gestures clip.aedat4      anywhere

The page has the accuracy with its interval, the classes, the recipe, calibration and figures. No recording is uploaded,
and nothing that names a file of this machine. It needs pip install 'event2vec[hub]'.
"""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from event2vec.cli.options import add_json_option
from event2vec.cli.parser import existing_run
from event2vec.cli.printing import say
from event2vec.errors import Event2VecError
from event2vec.names import counted


def add_arguments(parser: ArgumentParser) -> None:
    local = "a run, or a folder with a saved network"
    parser.add_argument("run", metavar="RUN", type=existing_run(local), help=local)
    parser.add_argument("repo", metavar="REPO", help="OWNER/NAME on the Hub; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="create the repository as private")
    parser.add_argument("--license", metavar="NAME", help="its license, such as apache-2.0 or cc-by-4.0")
    parser.add_argument("--message", metavar="TEXT", help="the commit message")
    add_json_option(parser)


def check(options: Namespace) -> None:
    from event2vec.hub import Address, import_library, is_on_hub

    if is_on_hub(options.run):
        raise Event2VecError(
            f"{options.run} is on the Hub already. Name a run or a network in a folder of this machine"
        )
    import_library()
    Address.to_push(options.repo, "REPO")


def run(options: Namespace) -> None:
    from event2vec.training.push import push

    names = {"private": options.private, "license_name": options.license, "message": options.message}
    pushed = push(options.run, options.repo, **names)
    if options.json:
        print(json.dumps(asdict(pushed), indent=2))
        return
    say(f"{counted(len(pushed.files), 'file')} pushed to {pushed.page}")
    say(f"Load it with: event2vec predict {pushed.address} FILE, or load_model({pushed.address!r}) in Python")
