"""Compiling a candidate's kernels for a GPU that this machine does not have."""

from .compiling import TargetCompileError, compile_launches
from .driver import TargetDriver

__all__ = ["TargetCompileError", "TargetDriver", "compile_launches"]
