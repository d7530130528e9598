"""Tones, chirps and noise, and their spectrograms, by NumPy alone."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

SOUNDS: dict[str, tuple[float, float, float, float]] = {
    "tone": (0.05, 0.45, 0.0, 0.0),
    "rising chirp": (0.05, 0.15, 0.25, 0.30),
    "falling chirp": (0.35, 0.45, -0.30, -0.25),
    "noise": (0.0, 0.0, 0.0, 0.0),
}
"""The classes. Between which frequencies one begins, in cycles per sample, and how far it then moves."""
LOUDNESS = 1.0
"""The amplitude of a sound beside noise of deviation 1."""

Array = NDArray[np.float32]


def drawn(seed: int, part: int, number: int) -> NDArray[np.float64]:
    """The numbers from 0 to 1 that sounds are made of, (number, 3): where each begins, how far it moves, and
    its phase. Example g is of class g modulo the number of classes."""
    return np.random.default_rng((seed, part)).random((number, 3))


def fingerprint(seed: int, numbers: tuple[int, ...]) -> str:
    """SHA-256 of the draws, which are the same on every processor; the last bit of a sine is not."""
    digest = sha256()
    for part, number in enumerate(numbers):
        digest.update(drawn(seed, part, number).tobytes())
    return digest.hexdigest()


def spectrograms(seed: int, part: int, number: int, bins: int, frames: int) -> Array:
    """The logarithms of the power, (number, bins, frames), of windows that overlap by half."""
    low, high, least, most = np.array([*SOUNDS.values()])[np.arange(number) % len(SOUNDS)].T
    start, move, phase = drawn(seed, part, number).T
    samples = bins * (frames + 1)
    time = np.arange(samples)
    begin, moved = low + start * (high - low), least + move * (most - least)
    cycles = begin[:, None] * time + moved[:, None] * time**2 / (2 * samples) + phase[:, None]
    noise = np.random.default_rng((seed, part, 1)).standard_normal((number, samples))
    heard = np.where(high > 0, LOUDNESS, 0.0)[:, None] * np.sin(2 * np.pi * cycles) + noise
    windows = np.lib.stride_tricks.sliding_window_view(heard, 2 * bins, axis=1)[:, ::bins]
    spectrum = np.fft.rfft(windows * np.hanning(2 * bins), axis=2)[:, :, 1:]
    power = np.log(np.abs(spectrum) ** 2 + 1e-6)
    return np.ascontiguousarray(power.transpose(0, 2, 1), dtype=np.float32)
