"""Proposes Candidates: the compiler seed, and a language model over the OpenAI protocol."""
