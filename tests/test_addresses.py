"""Addresses and paths are told apart, have one form, and carry no secrets; shards have a size."""

from pathlib import Path

import pytest

from event2vec import Event2VecError
from event2vec.data.addresses import check_address, is_address, local_place, usual_form, whole_name
from event2vec.data.shard_size import LEAST_MB, SHARD_MB, check_shard_size


@pytest.mark.parametrize(
    "place", ["s3://bucket/store", "S3://b", "hf://datasets/a/b", "https://h:8443/x", "abfs+x.y-z://c", "file:///a"]
)
def test_what_begins_with_a_scheme_is_an_address(place):
    assert is_address(place)


@pytest.mark.parametrize(
    "place", ["store", "./s3://b", "s3:/b", "3s://b", "://b", "a b://c", "C:\\store", "", Path("s3://bucket/store")]
)
def test_all_else_is_a_path(place):
    """A path that was made of an address has lost one of its slashes."""
    assert not is_address(place)


@pytest.mark.parametrize(
    ("address", "usual"),
    [
        ("S3://Bucket/Store/", "s3://Bucket/Store"),
        ("https://Host//a///", "https://Host//a"),
        ("GS://b", "gs://b"),
        ("s3://a://b/", "s3://a://b"),
    ],
)
def test_an_address_has_one_form_and_keeps_the_case_of_names(address, usual):
    assert usual_form(address) == usual
    assert usual_form(usual) == usual
    assert whole_name(address) == usual


def test_a_path_is_given_in_full_and_nothing_stays_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert whole_name("store") == str(tmp_path.resolve() / "store")
    assert whole_name(Path("link/x")) == str(tmp_path.resolve() / "real" / "x"), "and of a link, where it leads"
    assert whole_name(None) is None


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/a:b@c", "hf://owner/name@main", "s3://key@bucket/x", "https://host:8443/x", "https://h/u@v"],
)
def test_names_that_look_like_users_but_are_none_are_taken(address):
    check_address(address)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("https://host/store?token=abc", "has a query, expected the address of a folder"),
        ("https://token@host/store", "was given with a password or a token, which runs would keep"),
        ("http://token@host", "was given with a password or a token"),
        ("s3://key:secret@bucket/store", "was given with a password or a token"),
    ],
)
def test_secrets_are_refused_and_not_repeated(address, problem):
    with pytest.raises(Event2VecError) as caught:
        check_address(address)
    assert problem in str(caught.value)
    assert "Give secrets as fsspec expects them" in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("abc", "token@", "secret@"))


def test_an_address_to_write_to_is_refused_with_the_remedy():
    assert local_place("a/b") == Path("a/b")
    with pytest.raises(Event2VecError, match=r"^s3://b/x: is an address, expected a folder to write\. Do this$"):
        local_place("s3://b/x", ". Do this")


def test_a_shard_has_a_megabyte_at_least():
    check_shard_size(LEAST_MB)
    check_shard_size(SHARD_MB)
    with pytest.raises(Event2VecError, match="shards must have at least 1 megabyte, got 0"):
        check_shard_size(0)
