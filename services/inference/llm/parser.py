"""Reads a candidate's source from a model's free text. Never raises: what cannot be read becomes feedback."""

import ast
import builtins
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent

from services.contracts import Proposal

MAX_SOURCE_CHARACTERS = 200_000

IMPORTS = {
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "math": "import math",
    "libdevice": "from triton.language.extra import libdevice",
}
"""Imports that models forget, by the name they bind."""

_ASK_FOR_BLOCK = "Answer with one ```python block that holds the whole file and defines class ModelNew."
_FENCE = re.compile(r"[ \t]*+(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+.#-]*+)[^`]*+$")
_THINKING_TAG = re.compile(r"<(?P<end>/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_DEFINES_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
_DEFINES_MODEL = re.compile(r"^class\s+Model\b", re.MULTILINE)
_CODE_START = re.compile(r"^(?:import |from [\w.]+ import |@|class \w+|def \w+|\"\"\")", re.MULTILINE)
_PROSE_LINES_DROPPED = 60


@dataclass(frozen=True, eq=False)
class Block:
    """One fenced block, or code without a fence."""

    text: str
    closed: bool = True

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None where the text is not Python."""
        return parse(self.text)

    @property
    def defines_model_new(self) -> bool:
        """Whether class ModelNew stands at its top level."""
        return bool(_DEFINES_MODEL_NEW.search(self.text))


def parse_answer(text: str, finish_reason: str = "") -> Proposal:
    """The candidate in one answer; `source` is None with feedback for the model where there is none."""
    answer = storable(text)
    said = _without_thinking(answer)
    blocks = list(_fenced_blocks(said))
    cut_off = finish_reason == "length"
    chosen = _choose(blocks, cut_off) if blocks else _unfenced(said, cut_off)
    if chosen is None:
        problem = _why_nothing(answer, said, blocks, finish_reason)
        return Proposal(source=None, problem=problem, answer=answer, finish_reason=finish_reason)
    source, added = _with_imports(_with_needed_blocks(chosen, blocks))
    if len(source) > MAX_SOURCE_CHARACTERS:
        problem = f"The source has {len(source)} characters; the limit is {MAX_SOURCE_CHARACTERS}. {_ASK_FOR_BLOCK}"
        return Proposal(source=None, problem=problem, answer=answer, finish_reason=finish_reason)
    notes = [_kernel_note(source)]
    if added:
        notes.append(f"added missing {', '.join(added)}")
    if chosen in blocks and any(block.defines_model_new for block in blocks[blocks.index(chosen) + 1 :]):
        notes.append("its last block was cut off or unreadable, an earlier one is used")
    return Proposal(source=source, title="; ".join(notes), answer=answer, finish_reason=finish_reason)


def parse(source: str) -> ast.Module | None:
    """The syntax tree; None where Python refuses the text, whatever the reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def storable(text: str) -> str:
    """The text without what JSON and databases refuse: lone surrogates become "?", NUL becomes U+FFFD."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\x00", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")


def _without_thinking(text: str) -> str:
    """The text outside thinking tags; an end without its start (a chat template swallowed it) drops what is before."""
    kept, depth, place = "", 0, 0
    for tag in _THINKING_TAG.finditer(text):
        kept += text[place : tag.start()] if depth == 0 else ""
        if not tag["end"]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            kept = ""
        place = tag.end()
    return kept + (text[place:] if depth == 0 else "")


def _fenced_blocks(text: str) -> Iterator[Block]:
    """Blocks in order. A fence with a language inside an open block starts a new one: the model forgot to close."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not fence:
            if match:
                fence, lines = match["fence"], []
        elif match and _closes(match, fence):
            yield Block(dedent("\n".join(lines)).strip("\n") + "\n")
            fence = ""
        elif match and match["language"] and match["fence"] == fence:
            yield Block(dedent("\n".join(lines)).strip("\n") + "\n", closed=False)
            lines = []
        else:
            lines.append(line)
    if fence:
        yield Block(dedent("\n".join(lines)).strip("\n") + "\n", closed=False)


def _closes(match: re.Match[str], fence: str) -> bool:
    return not match["language"] and match["fence"].startswith(fence)


def _choose(blocks: list[Block], cut_off: bool) -> Block | None:
    """The last block that defines ModelNew: readable ones first, then complete ones with an error to report."""
    defining = [block for block in blocks if block.defines_model_new and not _is_cut(block, blocks, cut_off)]
    readable = [block for block in defining if block.tree is not None]
    complete = [block for block in defining if block.closed]
    usable = readable or complete
    return usable[-1] if usable else None


def _is_cut(block: Block, blocks: list[Block], cut_off: bool) -> bool:
    return cut_off and not block.closed and block is blocks[-1]


def _unfenced(text: str, cut_off: bool) -> Block | None:
    """Code that stands in the text without a fence, prose before and after it dropped."""
    start = _CODE_START.search(text)
    if cut_off or start is None or not _DEFINES_MODEL_NEW.search(text, start.start()):
        return None
    lines = text[start.start() :].rstrip().split("\n")
    for end in range(len(lines), max(0, len(lines) - _PROSE_LINES_DROPPED), -1):
        block = Block("\n".join(lines[:end]).rstrip() + "\n")
        if block.tree is not None:
            return block if block.defines_model_new else None
    return None


def _with_needed_blocks(chosen: Block, blocks: list[Block]) -> str:
    """The chosen block with those others that define names it uses, in the answer's order."""
    if chosen.tree is None:
        return chosen.text
    parts, needed = [chosen], _unbound_names(chosen.tree) - IMPORTS.keys()
    for block in reversed([block for block in blocks if block is not chosen and block.tree is not None]):
        assert block.tree is not None  # noqa: S101
        if needed & _top_level_names(block.tree):
            parts.append(block)
            needed = (needed | _unbound_names(block.tree) - IMPORTS.keys()) - _top_level_names(block.tree)
    joined = "\n\n".join(block.text for block in blocks if block in parts) if len(parts) > 1 else chosen.text
    return joined if parse(joined) is not None else chosen.text


def _with_imports(source: str) -> tuple[str, list[str]]:
    """The source with well-known imports that it uses but lacks, and the lines added."""
    tree = parse(source)
    if tree is None:
        return source, []
    unbound = _unbound_names(tree)
    added = [line for name, line in IMPORTS.items() if name in unbound]
    if not added:
        return source, []
    lines = source.split("\n")
    place = _end_of_preamble(tree)
    mended = "\n".join([*lines[:place], *added, *lines[place:]])
    return (mended, added) if parse(mended) is not None else (source, [])


def _end_of_preamble(tree: ast.Module) -> int:
    """Number of lines that the module's docstring and __future__ imports take."""
    end = 0
    for index, node in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        end = node.end_lineno or 0
    return end


def _unbound_names(tree: ast.Module) -> set[str]:
    """Names that are read but bound nowhere in the file, at any depth."""
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return loaded - _bound_names(ast.walk(tree)) - set(dir(builtins)) - {"__file__", "__name__"}


def _top_level_names(tree: ast.Module) -> set[str]:
    targets = [node for item in tree.body if isinstance(item, ast.Assign | ast.AnnAssign) for node in ast.walk(item)]
    return _bound_names([*tree.body, *targets])


def _bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
    return names


def _kernel_note(source: str) -> str:
    tree = parse(source)
    if tree is None:
        return "model's answer (not valid Python)"
    kernels = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
    if not kernels:
        return "model's answer without a Triton kernel"
    return f"model's answer: {len(kernels)} Triton kernel{'s' * (len(kernels) > 1)} ({', '.join(kernels)})"


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(item).split("(")[0] in ("triton.jit", "jit") for item in function.decorator_list)


def _why_nothing(answer: str, said: str, blocks: list[Block], finish_reason: str) -> str:
    """Feedback for the model: what its answer lacks and how to answer next time."""
    cut = finish_reason == "length"
    if finish_reason == "content_filter":
        return f"The server's content filter removed the answer. {_ASK_FOR_BLOCK}"
    if not said.strip():
        if not answer.strip():
            return f"The answer is empty. {_ASK_FOR_BLOCK}"
        limit = "the token limit was reached while thinking" if cut else "it holds nothing but thinking"
        return f"The answer has no code: {limit}. Think less and give the code. {_ASK_FOR_BLOCK}"
    if cut:
        return f"The answer was cut off at the token limit, before the code was complete: be shorter. {_ASK_FOR_BLOCK}"
    if unreadable := next((block for block in reversed(blocks) if block.defines_model_new), None):
        return f"The code block is not closed and {_syntax_error(unreadable.text)}. {_ASK_FOR_BLOCK}"
    if any(_DEFINES_MODEL.search(block.text) for block in blocks):
        return f"The code defines class Model; the optimised class must be called ModelNew. {_ASK_FOR_BLOCK}"
    if blocks:
        return f"No code block defines class ModelNew at its top level. {_ASK_FOR_BLOCK}"
    return f"The answer holds no code block. {_ASK_FOR_BLOCK}"


def _syntax_error(source: str) -> str:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"does not parse: line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"does not parse: {error}"
    return "may be incomplete"
