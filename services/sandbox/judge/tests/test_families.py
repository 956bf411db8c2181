import pytest
import torch

from services.sandbox.judge.families import DESCRIPTIONS, Family, apply_family


@pytest.mark.parametrize("family", [family for family in Family if family is not Family.AS_GIVEN])
def test_every_family_changes_the_values(family: Family) -> None:
    given = torch.rand(16, 8) + 0.1
    changed = given.clone()
    apply_family(family, [changed], seed=1)
    assert not torch.equal(changed, given)
    assert torch.isfinite(changed).all()
    assert family in DESCRIPTIONS


@pytest.mark.parametrize("family", list(Family))
def test_integers_and_bools_keep_their_values(family: Family) -> None:
    labels, mask = torch.arange(10), torch.tensor([True, False])
    apply_family(family, [labels, mask], seed=1)
    assert torch.equal(labels, torch.arange(10))
    assert torch.equal(mask, torch.tensor([True, False]))


@pytest.mark.parametrize("family", list(Family))
def test_an_expanded_leaf_stays_expanded(family: Family) -> None:
    leaf = torch.rand(6).expand(4, 6)
    apply_family(family, [leaf], seed=1)
    assert leaf.stride() == (0, 1)
    assert torch.equal(leaf[0], leaf[3])


@pytest.mark.parametrize("family", list(Family))
def test_strides_and_neighbours_are_kept(family: Family) -> None:
    storage = torch.rand(8, 10)
    before = storage.clone()
    leaf = storage.t()[::2]
    apply_family(family, [leaf], seed=1)
    assert torch.equal(storage[:, 1::2], before[:, 1::2])


def test_sliding_windows_change_each_stored_element_once() -> None:
    leaf = torch.ones(6).as_strided([4, 3], [1, 1])
    apply_family(Family.SCALED_UP, [leaf], seed=1)
    assert torch.equal(leaf, torch.full((4, 3), 3.0))


def test_the_ramp_makes_both_halves_differ_in_every_dimension() -> None:
    leaf = torch.ones(8, 8)
    apply_family(Family.RAMP, [leaf], seed=1)
    assert leaf[:4].mean() < 0.8 * leaf.mean()
    assert leaf[:, :4].mean() < 0.8 * leaf.mean()


def test_the_permutation_keeps_the_multiset() -> None:
    leaf = torch.arange(64.0)
    apply_family(Family.PERMUTED, [leaf], seed=3)
    assert torch.equal(leaf.sort().values, torch.arange(64.0))


def test_a_spike_reaches_the_first_and_the_last_element() -> None:
    leaf = torch.ones(32, 32)
    apply_family(Family.SPIKED, [leaf], seed=5)
    assert leaf[0, 0] == 16
    assert leaf[-1, -1] == 16


def test_the_same_seed_gives_the_same_values() -> None:
    first, second = torch.ones(64), torch.ones(64)
    apply_family(Family.TAILS, [first], seed=9)
    apply_family(Family.TAILS, [second], seed=9)
    assert torch.equal(first, second)
