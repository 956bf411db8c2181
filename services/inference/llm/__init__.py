"""Asks a language model for candidates, over the OpenAI protocol."""

from services.inference.llm.prompt import Prompt, build_prompt
from services.inference.llm.proposer import propose_llm

__all__ = ["Prompt", "build_prompt", "propose_llm"]
