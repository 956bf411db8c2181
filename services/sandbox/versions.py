"""Versions of what a verdict depends on."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("warpsmith", "torch", "triton", "numpy")


@cache
def versions() -> dict[str, str]:
    """Installed versions by package name, "python" included; packages that are missing are left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
