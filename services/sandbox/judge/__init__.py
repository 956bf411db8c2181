"""The judge: runs no user code, holds every secret, and is the only place where a verdict is made."""

EVALUATOR_VERSION = "1"
"""Raised whenever a rule of the ladder changes, so that old and new verdicts are told apart."""
