"""CUDA's libdevice functions, computed with numpy and scipy."""


def prepare() -> None:
    """Replaces the functions of `triton.language.extra.libdevice`."""
