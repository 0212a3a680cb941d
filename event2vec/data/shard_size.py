"""How large a shard is. Without numpy: `--help` is fast."""

from event2vec.errors import Event2VecError

SHARD_MB = 128  # megabytes: what one request fetches in about a second
LEAST_MB = 1


def check_shard_size(megabytes: int) -> None:
    if megabytes < LEAST_MB:
        raise Event2VecError(f"shards must have at least {LEAST_MB} megabyte, got {megabytes}")
