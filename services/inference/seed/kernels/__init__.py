"""Rewrites one of Inductor's kernels as plain Triton that a person would have written."""

from services.inference.seed.kernels.kernel import PlainKernel, rewrite_kernel

__all__ = ["PlainKernel", "rewrite_kernel"]
