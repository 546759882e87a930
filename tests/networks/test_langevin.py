"""The Langevin optimiser."""

from copy import deepcopy

import torch

from critex.networks.langevin import LangevinAdam


def test_without_noise_and_adam_it_is_gradient_descent():
    w = torch.tensor([1.0, -2.0], requires_grad=True)
    LangevinAdam([w], lr=0.1, noise=0.0, a=0.0).descend([torch.tensor([3.0, 4.0])])
    torch.testing.assert_close(w.detach(), torch.tensor([0.7, -2.4]))


def test_first_step_of_the_adam_term():
    w = torch.zeros(1, requires_grad=True)
    LangevinAdam([w], lr=0.1, noise=0.0, a=1.0, betas=(0.9, 0.99)).descend([torch.tensor([2.0])])
    # m = 0.1·2, v = 0.01·4, so m/√v = 1 without bias correction.
    torch.testing.assert_close(w.detach(), torch.tensor([-0.1 * (2 + 1)]))


def test_it_samples_the_gibbs_law_of_a_quadratic():
    w = torch.zeros(5000, requires_grad=True)
    optimizer = LangevinAdam([w], lr=0.02, noise=0.5, a=0.0)
    for _ in range(400):
        optimizer.descend([4.0 * (w.detach() - 1.0)])  # ∇ of 2(w − 1)²: N(1, 0.5²/4)
    assert abs(w.mean().item() - 1.0) < 0.02
    assert abs(w.var().item() - 0.0625) < 0.006


def test_a_copy_goes_on_with_the_same_noise():
    w, v = (torch.zeros(3, requires_grad=True) for _ in range(2))
    first, second = LangevinAdam([w], noise=1.0, seed=1), LangevinAdam([v], noise=1.0, seed=2)
    first.descend([torch.ones(3)])
    second.load_state_dict(deepcopy(first.state_dict()))
    v.data.copy_(w.data)
    for optimizer in (first, second):
        optimizer.descend([torch.ones(3)])
    assert torch.equal(w, v)


def test_parameters_added_later_get_no_noise_and_draw_none():
    """U of CAE+ is trained beside a sampled critic: it must not be shaken, nor change the critic's noise."""
    w, alone, u = (torch.zeros(3, requires_grad=True) for _ in range(3))
    both, single = LangevinAdam([w], noise=1.0, seed=1), LangevinAdam([alone], noise=1.0, seed=1)
    both.add_param_group({"params": [u]})
    for _ in range(2):
        both.descend([torch.ones(3), torch.zeros(3)])
        single.descend([torch.ones(3)])
    assert not u.any() and torch.equal(w, alone)
