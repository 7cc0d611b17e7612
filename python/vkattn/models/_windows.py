"""Sound of any length, window after window: the ids of times say where the next one begins."""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

import numpy as np

from ._rules import Timestamps

STRIDE = 2  # frames of a step of time


class Segment(NamedTuple):
    """What is said from `begin` to `end`, in seconds; ids: those of both times included."""

    begin: float
    end: float
    ids: list[int]


def segments_of(
    ids: Sequence[int], first: int, frames: int
) -> tuple[list[tuple[int, int, list[int]]], int]:
    """The segments (begin and end in steps of time, ids) of a window of `frames` frames, and how many
    frames are done with: two ids of times side by side end one and begin the next, and what begins there
    and is not ended belongs to the next window, unless a single time ends all.

    first: the id of time 0.
    """
    is_time = [x >= first for x in ids]
    cuts = [i + 1 for i in range(len(ids) - 1) if is_time[i] and is_time[i + 1]]
    if not cuts:
        times = [x - first for x in ids if x > first]
        whole = (0, times[-1] if times else frames // STRIDE, list(ids))
        return [whole] if ids else [], frames
    is_ended = is_time[-2:] == [False, True]
    if is_ended:
        cuts.append(len(ids))
    windows = [list(ids[begin:end]) for begin, end in zip([0, *cuts], cuts)]
    found = [(max(x[0] - first, 0), max(x[-1] - first, 0), x) for x in windows]
    done = frames if is_ended else found[-1][1] * STRIDE
    return found, done or frames


def segments(
    mel: np.ndarray,
    frames: int,
    times: Timestamps,
    say: Callable[[np.ndarray, list[int]], list[int] | None],
) -> Iterator[Segment]:
    """mel: [n_mel][any number of frames]. frames: of a window. say(window, ids): the ids that follow, by
    what all windows before have said; None: the window is passed over."""
    at = 0
    said: list[int] = []
    while at < mel.shape[1]:
        size = min(frames, mel.shape[1] - at)
        window = np.zeros((len(mel), frames), np.float32)
        window[:, :size] = mel[:, at : at + size]
        follow = say(window, said)
        found, done = ([], size) if follow is None else segments_of(follow, times.first, size)
        for begin, end, ids in found:
            seconds = [(at / STRIDE + x) * times.step for x in (begin, end)]
            yield Segment(seconds[0], seconds[1], ids)
            said = said + ids
        at += done
