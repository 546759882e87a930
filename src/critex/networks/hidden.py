"""φ of any critic: the input of its output layer."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from critex.errors import UserError, unknown
from critex.networks.modes import eval_mode, with_modes

ACTIVATIONS = (
    "Celu", "Elu", "Gelu", "Hardswish", "Hardtanh", "LeakyRelu", "Mish", "Relu", "Sigmoid", "Silu", "Softplus", "Tanh",
)  # fmt: skip
"""Autograd's names of the functions that end a hidden layer."""


class last_hidden:
    """φ of any critic without an `embed` method: the input of its last linear layer.

    `embed = last_hidden(critic)` runs the critic on its arguments, in evaluation mode, and returns the input of the
    `nn.Linear` that computes the output, [..., d]. A critic with several output layers (twin critics, several heads) needs
    `layer`, one of its modules or its dotted name.
    """

    def __init__(self, module: nn.Module, layer: str | nn.Linear | None = None) -> None:
        module = self.module = getattr(module, "_orig_mod", module)  # without torch.compile
        self._linears = {name: m for name, m in module.named_modules() if isinstance(m, nn.Linear)}
        if not self._linears:
            raise UserError("the module has no linear layer; pass a function that returns φ instead")
        if isinstance(layer, str):
            if layer not in self._linears:
                raise unknown("linear layer", layer, self._linears)
            layer = self._linears[layer]
        elif layer is not None and not isinstance(layer, nn.Linear):
            raise UserError(f"layer must be an nn.Linear or its name, got {type(layer).__name__}")
        self._layer: nn.Linear | None = layer  # if None, chosen at the first call

    @property
    def dim(self) -> int:
        """The length of φ; before the first call, the input width of the layer defined last."""
        layer = self._layer or list(self._linears.values())[-1]
        if not layer.in_features:
            raise AttributeError("the width of a LazyLinear is known after its first call")
        return layer.in_features

    @cached_property
    def _with_modes(self) -> list[nn.Module]:
        return with_modes(self.module)

    @cached_property
    def _compiled(self) -> bool:
        return any(m._compiled_call_impl or hasattr(m, "_orig_mod") for m in self.module.modules())

    def _eager(self) -> AbstractContextManager[Any]:
        """Compiled parts run as they were written: compiled code ignores hooks, or is compiled again for each."""
        return torch.compiler.set_stance("force_eager") if self._compiled else nullcontext()

    def __call__(self, *inputs: Any, **keywords: Any) -> Tensor:
        """φ, with its gradient."""
        given: list[Tensor] = []
        thread = get_ident()

        def record(_: nn.Module, positional: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
            if get_ident() == thread:  # another thread may train the critic at the same time
                given.append(positional[0] if positional else named["input"])

        with eval_mode(self._with_modes), self._eager():
            if self._layer is None:
                self._layer = self._output_layer(inputs, keywords)
            handle = self._layer.register_forward_pre_hook(record, with_kwargs=True)
            try:
                self.module(*inputs, **keywords)
            finally:
                handle.remove()
        if not given:
            raise UserError(
                "the chosen layer was not called in the forward pass; choose another with layer=, or pass a function that "
                "returns φ"
            )
        return given[-1]

    def _output_layer(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> nn.Linear:
        """The linear layer that computes the output; an error, not a guess, if others compute it, too."""
        if any(is_lazy(p) for p in self.module.parameters()):
            with torch.no_grad():
                self.module(*inputs, **keywords)
        reached, fed_by, followed_by = self._graph(None, inputs, keywords)
        if not fed_by:
            raise UserError("no linear layer was called in the forward pass; pass a function that returns φ")
        computing = [name for name in fed_by if name in reached]
        if not computing:
            raise UserError(
                "the critic's output is no tensor that depends on a linear layer; choose the last one with layer=, or pass a "
                "function that returns φ"
            )
        last = computing[-1]
        layer = self._linears[last]
        past, _, _ = self._graph(last, inputs, keywords)
        others = [name for name in past if name not in fed_by[last]]  # what feeds it may be an output as well
        rivals = [name for name in computing if name in others]
        if rivals:
            raise UserError(f"several layers could be the last: {rivals[-1]}, {last}; choose one with layer=")
        if others:
            name = others[-1]
            kind = type(self.module.get_submodule(name)).__name__
            raise UserError(
                f"{f'{kind} {name}'.strip()} runs after {last}, the last nn.Linear, so it may be the output layer; pass a "
                "function that returns φ, or choose an nn.Linear with layer="
            )
        if activation := followed_by[last]:
            raise UserError(
                f"{activation} follows {last}, the last nn.Linear, as in a trunk without its output layer; pass the whole "
                "critic, or a function that returns φ, as in lambda s: trunk(s), or choose an nn.Linear with layer="
            )
        if layer.in_features != self.dim:
            raise UserError(
                f"layer {last} was executed last, with an input of {layer.in_features}; the layer defined last has "
                f"{self.dim}; choose one with layer="
            )
        return layer

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _graph(
        self, cut: str | None, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
        """(layers whose parameters the output depends on, layers that feed each linear layer, activation after each).

        Linear layers are in order of execution. The output of the layer `cut` counts as a constant.
        """
        parameters = {
            name: p.detach().requires_grad_()
            for name, p in self.module.named_parameters()
            if p.is_floating_point()
        }
        layers = list(dict.fromkeys(map(self._layer_of, parameters)))

        def reached(outputs: Iterable[Tensor]) -> list[str]:
            some = [x for x in outputs if x.requires_grad]
            ones = [torch.ones_like(x) for x in some]
            found = torch.autograd.grad(
                some, list(parameters.values()), ones, retain_graph=True, allow_unused=True
            )
            names = {self._layer_of(name) for name, g in zip(parameters, found, strict=True) if g is not None}
            return [layer for layer in layers if layer in names]

        fed_by: dict[str, list[str]] = {}
        node_of: dict[str, Any] = {}

        def note(name: str, given: Iterable[Any], output: Tensor) -> Tensor | None:
            fed_by.pop(name, None)
            fed_by[name] = reached(_tensors(given))
            node_of[name] = output.grad_fn
            return output.detach() if name == cut else None

        hooks = [
            layer.register_forward_hook(
                lambda _, x, named, y, name=name: note(name, [*x, *named.values()], y), with_kwargs=True
            )
            for name, layer in self._linears.items()
        ]
        ordinary = [_map(lambda x: x.clone() if x.is_inference() else x, x) for x in (inputs, keywords)]
        try:
            output = torch.func.functional_call(self.module, parameters, *ordinary)
        finally:
            for hook in hooks:
                hook.remove()
        outputs = _tensors(output)
        return reached(outputs), fed_by, {name: _activation(outputs, node_of[name]) for name in node_of}

    def _layer_of(self, parameter: str) -> str:
        """The module that owns a parameter; for the parts of a normed linear layer, that layer."""
        owner = parameter.rpartition(".")[0]
        inside = (name for name in self._linears if f"{owner}.".startswith(f"{name}.") or not name)
        return next(inside, owner)


def _activation(outputs: Iterable[Tensor], source: Any) -> str:
    """An activation function on every way from the node `source` of the autograd graph to the outputs, or ""."""
    ways: list[tuple[Any, str]] = [(x.grad_fn, "") for x in outputs]
    seen: set[tuple[Any, bool]] = set()
    found = ""
    while ways:
        node, passed = ways.pop()
        if node is source and not passed:
            return ""
        if node is source:
            found = passed
        elif node is not None and (node, bool(passed)) not in seen:
            seen.add((node, bool(passed)))
            kind = node.name().partition("Backward")[0]
            passed = kind if kind in ACTIVATIONS else passed
            ways += [(before, passed) for before, _ in node.next_functions]
    return found


def _map(fn: Any, x: Any) -> Any:
    """`fn` of every tensor in nested tuples, lists and dicts."""
    if isinstance(x, Tensor):
        return fn(x)
    if isinstance(x, dict):
        return {key: _map(fn, value) for key, value in x.items()}
    return type(x)(_map(fn, value) for value in x) if type(x) in (tuple, list) else x


def _tensors(x: Any) -> list[Tensor]:
    """Every tensor in nested tuples, lists and mappings, such as dicts and TensorDicts."""
    if isinstance(x, Tensor):
        return [x]
    parts = x.values() if hasattr(x, "values") else x if isinstance(x, tuple | list) else ()
    return [tensor for part in parts for tensor in _tensors(part)]
