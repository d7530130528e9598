"""What the output of a network is asked."""

from __future__ import annotations

from dataclasses import dataclass

from nas.head import Classes
from nas.layers import Shape


@dataclass(frozen=True)
class Sound(Classes):
    """Which sound a spectrogram is of. Input: (1, bins, frames), output: (classes,)."""

    example = "spectrogram"
    answers = "sounds"
    input_name = "spectrograms"

    def wording(self, input: Shape) -> str:
        return f"spectrogram of {input[1]} bins × {input[2]} frames"
