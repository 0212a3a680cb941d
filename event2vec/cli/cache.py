"""Show the cache: the stores that were prepared for training, with their source, size and last use.

Everything in it can be rebuilt. Remove what you no longer need with --remove or --remove-all; an entry that another
process prepares or reads is not removed. Set EVENT2VEC_CACHE to keep the cache in another folder.
"""

import json
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from event2vec.cli.options import add_json_option
from event2vec.cli.printing import print_table, say
from event2vec.names import counted

COMPUTES = False

if TYPE_CHECKING:
    from event2vec.data.cache import CachedStore


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--remove", nargs="+", metavar="NAME", help="remove these entries, by their names in the list")
    parser.add_argument("--remove-all", action="store_true", help="remove all entries")
    add_json_option(parser)


def run(options: Namespace) -> int:
    from event2vec.data.cache import cache_folder, cached_stores
    from event2vec.errors import Event2VecError

    if options.remove and options.remove_all:
        raise Event2VecError("--remove and --remove-all cannot be combined; omit one")
    entries = cached_stores()
    if options.remove or options.remove_all:
        return _remove(options.remove or [entry.name for entry in entries], options.json)
    if options.json:
        print(json.dumps({"folder": str(cache_folder()), "stores": [asdict(entry) for entry in entries]}, indent=2))
    else:
        _show(entries)
    return 0


def _remove(names: list[str], as_json: bool) -> int:
    """Remove what can be removed; exit code 2 if something could not."""
    from event2vec.data.cache import cache_folder, remove_cached
    from event2vec.errors import Event2VecError

    removed: list[CachedStore] = []
    refused: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        try:
            removed.append(remove_cached(name))
        except Event2VecError as error:
            refused.append({"name": name, "problem": str(error)})
    freed = sum(entry.size for entry in removed)
    if as_json:
        facts = {"removed": [entry.name for entry in removed], "refused": refused, "freed": freed}
        print(json.dumps({"folder": str(cache_folder()), **facts}, indent=2))
    for entry in removed:
        say(f"removed {entry.name}, {_readable(entry.size)}")
    for each in refused:
        say(f"event2vec: {each['problem']}")
    if removed:
        say(f"{_readable(freed)} freed in {cache_folder()}")
    elif not refused:
        say(f"{cache_folder()}: the cache is empty")
    return 2 if refused else 0


def _show(entries: list["CachedStore"]) -> None:
    from event2vec.data.cache import cache_folder

    heads = ("name", "made from", "recordings", "size", "last used", "state")
    rows = [
        (
            entry.name,
            entry.made_of or "-",
            "-" if entry.recordings is None else f"{entry.recordings:,}",
            _readable(entry.size),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used)),
            entry.state,
        )
        for entry in entries
    ]
    if rows:
        print_table(heads, rows, left=("name", "made from", "state"))
    for entry in entries:
        if entry.problem:
            say(f"event2vec: warning: {entry.problem}")
    count = counted(len(entries), "entry", "entries")
    say(f"{count}, {_readable(sum(entry.size for entry in entries))} in {cache_folder()}")


def _readable(size: int) -> str:
    """Bytes in the unit that fits."""
    amount, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if round(amount, 1) < 1000:
            break
        amount, unit = amount / 1000, larger
    return counted(size, "byte") if unit == "bytes" else f"{amount:.1f} {unit}"
