import torch

from services.sandbox.judge import mutants


def test_halving_repeats_the_first_half_of_the_rows() -> None:
    leaf = torch.arange(10.0).view(5, 2)
    assert mutants.halve_inputs([leaf])
    assert leaf.tolist() == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]


def test_halving_looks_past_dimensions_of_one() -> None:
    leaf = torch.arange(4.0).view(1, 4)
    assert mutants.halve_inputs([leaf])
    assert leaf.tolist() == [[0, 1, 0, 1]]


def test_halving_keeps_labels_in_range_and_expanded_leaves_expanded() -> None:
    labels, expanded = torch.arange(6), torch.arange(4.0).expand(3, 4)
    assert mutants.halve_inputs([labels, expanded])
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert expanded.stride() == (0, 1)


def test_halving_equal_rows_changes_nothing() -> None:
    assert not mutants.halve_inputs([torch.ones(4, 4), torch.tensor(3.0)])


def test_identity_needs_the_same_shape_and_dtype() -> None:
    output = torch.zeros(2, 3)
    same, other = torch.ones(2, 3), torch.ones(3)
    assert len(mutants.identity([output], [same, other, same.double()])) == 1
    assert mutants.identity([output, output], [same]) == []


def test_each_mutant_differs_from_the_answer() -> None:
    outputs = [torch.randn(4, 4)]
    for mutated in (mutants.zeros(outputs), mutants.constant(outputs), mutants.low_precision(outputs)):
        assert mutated is not None
        assert not torch.equal(mutated[0], outputs[0])
        assert mutated[0].dtype == outputs[0].dtype


def test_mutants_that_cannot_be_are_none() -> None:
    assert mutants.not_a_number([torch.arange(3)]) is None
    assert mutants.low_precision([torch.ones(2, dtype=torch.bfloat16)]) is None
