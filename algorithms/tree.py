"""Nested state as plain data and tensors, so that it can be kept without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

_TENSOR, _TUPLE, _ITEMS = "__tensor__", "__tuple__", "__items__"


def pack(tree: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Return `tree` as JSON can hold it; its tensors go to `tensors` under their dotted path.

    Mappings (with keys of any plain kind), lists, tuples, tensors, numbers, text, bools and None.

    Raises:
        TypeError: naming the path, for anything else.
    """
    if isinstance(tree, Tensor):
        tensors[name] = tree.detach().contiguous()
        return {_TENSOR: name}
    if isinstance(tree, Mapping):
        packed = [
            (key, pack(value, tensors, f"{name}.{key}" if name else str(key))) for key, value in tree.items()
        ]
        if all(isinstance(key, str) for key, _ in packed):
            return dict(packed)
        return {_ITEMS: [list(item) for item in packed]}
    if isinstance(tree, (list, tuple)):
        items = [pack(value, tensors, f"{name}.{i}") for i, value in enumerate(tree)]
        return {_TUPLE: items} if isinstance(tree, tuple) else items
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"{name}: {type(tree).__name__} is not plain data.")


def unpack(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Undo `pack`.

    Raises:
        KeyError: a tensor is missing.
    """
    if isinstance(plain, list):
        return [unpack(value, tensors) for value in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {_TENSOR}:
        return tensors[plain[_TENSOR]]
    if plain.keys() == {_TUPLE}:
        return tuple(unpack(value, tensors) for value in plain[_TUPLE])
    if plain.keys() == {_ITEMS}:
        return {key: unpack(value, tensors) for key, value in plain[_ITEMS]}
    return {key: unpack(value, tensors) for key, value in plain.items()}
