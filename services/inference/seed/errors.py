"""Why there is no seed."""


class NoSeedError(ValueError):
    """The op cannot be rewritten; the message completes the sentence "no seed: …"."""
