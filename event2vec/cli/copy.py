"""Copy a store in shards: to a folder, or to another machine from which training reads it.

    event2vec copy my_store s3://bucket/my_store
    event2vec train folder --data s3://bucket/my_store
    event2vec copy s3://bucket/my_store my_store         back, or from one place to another
    event2vec copy my_store /mnt/shared/my_store --shard-mb 256 --cluster auto
    event2vec copy first second /mnt/shared/both         several become one: classes, sensor and sampling must agree

If it was stopped, the same command continues with the shards that are missing.
Shards are fetched when they are needed, checked, and kept in the user's cache; together they take at most 20 GB there
(EVENT2VEC_SHARDS_GB). Keys and endpoints are those of fsspec's packages, such as AWS_ENDPOINT_URL.
"""

import json
import os
from argparse import ArgumentParser, Namespace

from event2vec.cli.options import CLUSTER, add_json_option
from event2vec.cli.parser import at_least, existing
from event2vec.cli.printing import say
from event2vec.cli.progress import shown_progress
from event2vec.cluster import Cluster
from event2vec.data.addresses import is_address
from event2vec.data.shard_size import LEAST_MB, SHARD_MB
from event2vec.errors import FileError
from event2vec.names import counted, hide_secrets

COMPUTES = False


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "stores", metavar="STORE", nargs="+", type=existing("a store"), help="a store, here or at an address"
    )
    parser.add_argument("out", metavar="OUT", help="the folder or the address to write")
    parser.add_argument(
        "--shard-mb",
        type=at_least(LEAST_MB),
        default=SHARD_MB,
        metavar="MB",
        help="approximate size of a shard in MB",
    )
    parser.add_argument("--cluster", metavar="WHERE", help=f"write shards side by side {CLUSTER}")
    add_json_option(parser)


def check(options: Namespace) -> None:
    Cluster.of(options.cluster)
    if not is_address(options.out) and os.path.exists(options.out):
        raise FileError(options.out, "exists already. Remove it or choose another OUT")


def run(options: Namespace) -> None:
    from event2vec.data.shard_writer import copy_store

    store = copy_store(
        options.stores, options.out, options.shard_mb, cluster=options.cluster, progress=shown_progress()
    )
    place, events = hide_secrets(options.out), int(store.offsets[-1])
    if options.json:
        print(json.dumps({"store": place, "recordings": len(store), "events": events}, indent=2))
    else:
        say(f"{place}: {counted(len(store), 'recording')}, {counted(events, 'event')}")
