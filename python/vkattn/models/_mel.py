"""Log-mel spectrograms of sound, on the host, as Whisper was trained with them."""

from __future__ import annotations

import numpy as np

RATE = 16000  # samples of a second
HOP = 160  # samples of a frame
WINDOW = 400
AT_ONCE = 3000  # frames whose spectrum is in memory
_LINEAR, _LOGARITHMIC = 200.0 / 3, np.log(6.4) / 27  # Slaney's scale: Hz of a mel; from 1000 Hz on


def _mels(hertz: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        high = 15.0 + np.log(hertz / 1000.0) / _LOGARITHMIC
    return np.where(hertz < 1000.0, hertz / _LINEAR, high)


def _hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < 15.0, mels * _LINEAR, 1000.0 * np.exp((mels - 15.0) * _LOGARITHMIC))


def filters(n_mel: int) -> np.ndarray:
    """Triangles of equal area from 0 Hz to half the rate: [n_mel][1 + WINDOW / 2]."""
    found = np.linspace(0, RATE / 2, 1 + WINDOW // 2)
    ends = _hertz(np.linspace(0.0, _mels(np.array(RATE / 2)), n_mel + 2))
    width = np.diff(ends)
    slopes = ends[:, None] - found[None, :]
    up, down = -slopes[:-2] / width[:-1, None], slopes[2:] / width[1:, None]
    made: np.ndarray = np.maximum(0, np.minimum(up, down)) * (2.0 / (ends[2:] - ends[:-2]))[:, None]
    return made


def log_mel(sound: np.ndarray, n_mel: int, frames: int) -> np.ndarray:
    """float32 [n_mel][frames] of samples, which silence fills up to `frames` frames."""
    samples = np.zeros(frames * HOP)
    samples[: len(sound)] = sound
    padded = np.pad(samples, WINDOW // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    each = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames]
    logs, by = np.empty((n_mel, frames)), filters(n_mel)
    for at in range(0, frames, AT_ONCE):
        power = np.abs(np.fft.rfft(each[at : at + AT_ONCE] * window)) ** 2
        logs[:, at : at + AT_ONCE] = np.log10(np.maximum(by @ power.T, 1e-10))
    made: np.ndarray = ((np.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0).astype(np.float32)
    return made
