"""Checksums of what a checkpoint holds: one for each array, one for the record."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp


def checksum_of_record(record: Mapping[str, Any]) -> int:
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def checksums(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Of all bits of each array; the same however it is spread over devices and processes."""
    by_place: dict[Any, dict[str, Any]] = {}
    for name, array in arrays.items():  # one program cannot read what is on several devices
        by_place.setdefault(frozenset(array.devices()), {})[name] = array
    found = {name: x for group in by_place.values() for name, x in _checksum_all(group).items()}
    return {name: int(found[name]) for name in arrays}


@jax.jit
def _checksum_all(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: _checksum(array) for name, array in arrays.items()}


def _checksum(array: Any) -> Any:
    """A sum of bytes, each stirred with its place. Sums of integers have no order."""
    if array.dtype == jnp.bool_:
        array = array.astype(jnp.uint8)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = jnp.stack([array.real, array.imag])
    width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}[array.dtype.itemsize]
    words = jax.lax.bitcast_convert_type(array, width).astype(jnp.uint32).ravel()
    places = jax.lax.iota(jnp.uint32, words.size)
    return jnp.sum(_stirred(words ^ _stirred(places)), dtype=jnp.uint32)


def _stirred(words: Any) -> Any:
    """The finaliser of MurmurHash3: every bit in changes about half of the bits out."""
    words = (words ^ (words >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> jnp.uint32(16))
