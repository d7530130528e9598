"""A task of another package: spectrograms of generated tones and chirps, told apart by what sounds."""
