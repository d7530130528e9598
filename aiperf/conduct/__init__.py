"""The life of a group as a pure machine: what happens goes in, what is to be done comes out."""
