"""OpFacts: what one counted forward of the reference shows, and the roofline prediction of eager mode."""

from collections import Counter

from pydantic import JsonValue

from services.contracts import GpuSpec, OpFacts, TensorSpec
from services.sandbox.judge.prediction import aten_launches, need_of, state_bytes, tree_bytes
from services.sandbox.judge.reference import Question
from services.sandbox.judge.roofline import floor_us, forward_us
from services.sandbox.replies import Loaded, StateKind, Tree


def op_facts(question: Question, loaded: Loaded, spec: GpuSpec) -> OpFacts:
    """Facts from inputs as given; the question must have been counted."""
    calls = question.answer.forward.aten or []
    outputs = question.answer.tree
    need, eager = need_of(question.tree, loaded, outputs, calls), aten_launches(calls)
    return OpFacts(
        inputs=[leaf.spec for leaf in question.tree.leaves],
        scalars=describe_scalars(question.tree, loaded.forward_parameters),
        outputs=[leaf.spec for leaf in outputs.leaves],
        parameter_count=sum(spec.numel for spec in _parameters(loaded)),
        input_bytes=tree_bytes(question.tree),
        output_bytes=tree_bytes(outputs),
        state_bytes=state_bytes(loaded),
        moved_bytes=need.bytes_moved,
        eager_bytes=sum(launch.bytes_moved for launch in eager),
        flops=sum(call.flops for call in calls),
        matmul_flops=sum(call.flops for call in calls if call.matmul),
        aten_ops=dict(sorted(Counter(call.name for call in calls).items())),
        floor_us=floor_us(need, spec),
        eager_us=forward_us(eager, need, spec),
        uses_grad=any(leaf.requires_grad for leaf in question.tree.leaves),
        structure=outputs.structure,
    )


def describe_scalars(tree: Tree, parameters: list[str]) -> list[str]:
    """Inputs that are not tensors, by forward's parameter names where they are known: "scale=0.125"."""
    named = _named(tree.structure, parameters)
    return [f"{name}={text}" for name, item in named if (text := _scalar(item)) is not None]


def _named(structure: JsonValue, parameters: list[str]) -> list[tuple[str, JsonValue]]:
    """The arguments with forward's names for them."""
    body = next(iter(structure.values())) if isinstance(structure, dict) else None
    if isinstance(body, dict):
        return list(body.items())
    items = body if isinstance(body, list) else []
    return [(parameters[i] if i < len(parameters) else f"input {i}", item) for i, item in enumerate(items)]


def _scalar(item: JsonValue) -> str | None:
    """The text of a scalar node; None for tensors and for containers of tensors."""
    if not isinstance(item, dict):
        return None
    ((tag, body),) = item.items()
    if tag == "value":
        return repr(body)
    return str(body) if tag in ("float", "complex", "dtype", "device") else None


def _parameters(loaded: Loaded) -> list[TensorSpec]:
    return [entry.spec for entry in loaded.state if entry.kind is StateKind.PARAMETER and not entry.tied_to]
