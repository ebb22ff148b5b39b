"""Compresses texts that have much in common, each of which is read alone.

A zlib dictionary holds the passages that most of them share. It takes a twentieth of the size off
that larger groups would, and costs a reader nothing.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

SIZE = 1 << 14  # bytes of a dictionary: zlib looks back twice as far
PASSAGE = 128  # bytes that it takes over at a time
PART = 8  # bytes that are counted as one
SAMPLE = 16  # a dictionary is made of one text of so many


def compress(texts: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """A dictionary for some texts, and the texts, compressed with it."""
    dictionary = common_passages(texts[::SAMPLE])
    return dictionary, [_compressed(text, dictionary) for text in texts]


def _compressed(text: bytes, dictionary: bytes) -> bytes:
    writer = zlib.compressobj(9, memLevel=9, zdict=dictionary)
    return writer.compress(text) + writer.flush()


def common_passages(texts: Sequence[bytes]) -> bytes:
    """The passages of texts whose parts most of them have, the best last: nearest to a text.

    Each stretch of the texts gives one, which counts what others gave as absent.
    """
    counts: Counter[bytes] = Counter()
    for text in texts:
        counts.update(set(_parts(text)))
    everything = b"".join(texts)
    stretch = len(everything) // (SIZE // PASSAGE)
    if stretch <= PASSAGE:
        return b""
    passages: list[tuple[int, bytes]] = []
    for start in range(0, len(everything) - stretch + 1, stretch):
        score, passage = _best(everything[start : start + stretch], counts)
        passages.append((score, passage))
        for part in _parts(passage):
            counts.pop(part, None)
    return b"".join(passage for _, passage in sorted(passages))[-SIZE:]


def _best(text: bytes, counts: Counter[bytes]) -> tuple[int, bytes]:
    """The passage of a text whose parts count most, behind how much that is."""
    scores = [counts[part] for part in _parts(text)]
    score = sum(scores[:PASSAGE])
    best, place = score, 0
    for start, (gone, new) in enumerate(zip(scores, scores[PASSAGE:]), 1):
        score += new - gone
        if score > best:
            best, place = score, start
    return best, text[place : place + PASSAGE]


def _parts(text: bytes) -> list[bytes]:
    return [text[i : i + PART] for i in range(len(text) - PART)]
