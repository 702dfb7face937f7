"""`target: dotted.Name` strings: finding, describing and building what they name."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vineenv.errors import UsageError, unknown

_PLAIN = (int, float, str, bool)


def resolve(target: str) -> Callable[..., Any]:
    """Import what a dotted name stands for.

    Raises:
        UsageError: the module or the name in it does not exist, or it is python's own.
    """
    module_name, _, name = target.rpartition(".")
    if not module_name:
        raise UsageError(f"target {target!r} is not a dotted name like envs.arithmetic.Arithmetic.")
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise UsageError(
            f"target {target!r} is of python's own library; name a class or function made for it."
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise UsageError(
                f"target {target!r} needs the package {error.name!r}, which is not installed."
            ) from error
        raise UsageError(f"target {target!r}: there is no module {module_name!r}.") from error
    if not hasattr(module, name):
        raise unknown("target", target, [f"{module_name}.{n}" for n in vars(module) if not n.startswith("_")])
    return getattr(module, name)


def schema(target: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Dataclass fields for the keyword-only parameters of a target.

    What a class takes by `**keywords` it passes on, so the parameters of its bases count too.
    A parameter without default is a key that the file must give.
    """
    fields: dict[str, tuple[str, Any, Any]] = {}
    for function in _signatures(target):
        try:
            hints = typing.get_type_hints(function)
        except NameError:  # names imported for type checkers only: the values go unchecked
            hints = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in fields:
                kind = _field_type(hints.get(parameter.name, Any))
                default = "???" if parameter.default is inspect.Parameter.empty else parameter.default
                if isinstance(default, (list, dict)):
                    default = dataclasses.field(default_factory=lambda value=default: value.copy())
                fields[parameter.name] = (parameter.name, kind, default)
    return list(fields.values())


def build(node: DictConfig, *given: Any, base: type | None = None, **keywords: Any) -> Any:
    """Build a target with the values of its node.

    A class is instantiated with what the caller gives and the node's keys; a plain function
    becomes itself with those keys bound.

    Raises:
        UsageError: it is not a class derived from `base`, where one is given.
    """
    target = resolve(node.target)
    if base is not None and not (isinstance(target, type) and issubclass(target, base)):
        raise UsageError(f"target {node.target}: not a class derived from {base.__module__}.{base.__name__}.")
    values = OmegaConf.to_container(node, resolve=True)
    assert isinstance(values, Mapping)
    own: dict[str, Any] = {str(k): v for k, v in values.items() if k != "target"}
    own.update(keywords)
    if isinstance(target, type):
        return target(*given, **own)
    return functools.partial(target, **own) if own else target


def _signatures(target: Callable[..., Any]) -> list[Callable[..., Any]]:
    if not isinstance(target, type):
        return [target]
    found = []
    for owner in target.__mro__:
        init = owner.__dict__.get("__init__")
        if init is None:
            continue
        found.append(init)
        kinds = {p.kind for p in inspect.signature(init).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return found


def _field_type(hint: Any) -> Any:
    """The annotation if OmegaConf can hold it, else Any; a Literal is checked by its owner."""
    if hint in _PLAIN:
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(kinds) == 1 and kinds[0] in _PLAIN:
            return kinds[0] | None
    return Any
