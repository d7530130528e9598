"""Texts: bytes without a tokenizer, cut into windows, each of whose symbols predicts the next."""
