"""Composing a configuration from files and `key=value` arguments, checked before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from algorithms.guards import GuardConfig
from algorithms.targets import resolve, schema
from vineenv.errors import UsageError, nearest, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESUMES = ("auto", "never", "anyway")
Keys = TypeVar("Keys", bound="DataclassInstance")


@dataclasses.dataclass(kw_only=True)
class EvalConfig:
    """Held-out evaluation: `problems` of `split` every `every` iterations, at temperature 1 and greedily.

    The start and the end are evaluated on `final_split`, so that nothing is chosen on it.
    """

    every: int
    problems: int
    split: str
    final_split: str
    final_problems: int

    def __post_init__(self) -> None:
        if min(self.every, self.problems, self.final_problems) < 1:
            raise UsageError("eval.every, eval.problems and eval.final_problems must be at least 1.")


@dataclasses.dataclass(kw_only=True)
class RunConfig:
    """What a training run takes beside its parts.

    `resume` is "auto" (a run_dir that holds a run goes on from its last checkpoint), "never" (it is
    refused) or "anyway" (it goes on even with a configuration that differs).
    """

    iterations: int
    seed: int
    eval: EvalConfig
    samples: int
    save_every: int
    keep: int
    guards: GuardConfig
    run_dir: str | None = None
    resume: str = "auto"
    dry_run: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        if self.resume not in RESUMES:
            raise unknown("resume", self.resume, RESUMES)
        for name, least in (("iterations", 0), ("samples", 0), ("save_every", 0), ("keep", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} must be at least {least}.")


def own_keys(schema: type[Keys], config: DictConfig) -> Keys:
    """A command's own keys, checked by their dataclass.

    Raises:
        UsageError: a value that makes no sense.
    """
    chosen = {field.name: config[field.name] for field in dataclasses.fields(schema)}
    own = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(_lenient(schema)), chosen))
    return _instance(schema, own)


def _instance(schema: type[Keys], values: Any) -> Keys:
    given: dict[str, Any] = {}
    for name, kind in get_type_hints(schema).items():
        value = getattr(values, name)
        given[name] = _instance(kind, value) if dataclasses.is_dataclass(value) else value
    return schema(**given)


def search_path() -> list[Path]:
    """Folders in which group files are looked up: ./configs first, then the shipped ones."""
    shipped = Path(configs.__file__).parent
    own = Path.cwd() / "configs"
    return [own, shipped] if own.is_dir() and own.resolve() != shipped.resolve() else [shipped]


def group_names(group: str) -> list[str]:
    """The names of the files of a group."""
    return sorted({file.stem for folder in search_path() for file in (folder / group).glob("*.yaml")})


def load_group(group: str, name: str) -> DictConfig:
    """Read one file of a group.

    Raises:
        UsageError: there is none of that name, or it is not a mapping.
    """
    for folder in search_path():
        file = folder / group / f"{name}.yaml"
        if file.is_file():
            return _read(file)
    known = group_names(group)
    hint = nearest(name, known)
    guess = f" Did you mean `{group}={hint}`?" if hint else ""
    raise UsageError(f"No configs/{group}/{name}.yaml.{guess} Known: {', '.join(known) or 'none'}.")


def compose(root: str, root_schema: Any, arguments: Sequence[str], *, complete: bool = True) -> DictConfig:
    """Merge the root file, the chosen group files and `key=value` arguments.

    Args:
        root: name of the root file; its `defaults` name a file for each group.
        root_schema: dataclass of the root's own keys.
        arguments: `group=name`, `dotted.key=value` or `exp=name`.
        complete: refuse keys without a value, and values that make no sense; false is for help.

    Returns:
        The whole configuration, struct-locked, each group with its `target` and every key of it.

    Raises:
        UsageError: an unknown group, name or key, a wrong type, a missing value.
    """
    file = next(folder / f"{root}.yaml" for folder in search_path() if (folder / f"{root}.yaml").is_file())
    base = _read(file)
    choices: dict[str, str] = {str(k): str(v) for k, v in base.pop("defaults").items()}
    overrides = _parse(arguments)
    if "exp" in overrides:
        preset = load_group("exp", str(overrides.pop("exp")))
        overrides = {**{str(k): v for k, v in preset.items()}, **overrides}
    for group in choices:
        if group in overrides:
            choices[group] = str(overrides.pop(group))
    config = OmegaConf.create({})
    for group, name in choices.items():
        own = {k.removeprefix(f"{group}."): v for k, v in overrides.items() if k.startswith(f"{group}.")}
        config[group] = _compose_group(group, load_group(group, name), own)
    rest = {k: v for k, v in overrides.items() if k.split(".")[0] not in choices}
    root_keys = _merge(OmegaConf.structured(_lenient(root_schema)), base, rest, "")
    merged = OmegaConf.merge(OmegaConf.create(OmegaConf.to_container(root_keys)), config)
    assert isinstance(merged, DictConfig)
    if complete:
        _check_missing(merged)
        own_keys(root_schema, merged)
    OmegaConf.set_struct(merged, True)
    return merged


def _compose_group(group: str, file: DictConfig, overrides: Mapping[str, Any]) -> DictConfig:
    target = overrides.get("target", file.get("target"))
    if not isinstance(target, str):
        raise UsageError(f"configs/{group}: the file names no `target: dotted.Name`.")
    fields = schema(resolve(target))
    structured = OmegaConf.structured(dataclasses.make_dataclass("Group", [("target", str, target), *fields]))
    return _merge(structured, file, {**overrides, "target": target}, f"{group}.")


def _merge(structured: DictConfig, file: DictConfig, overrides: Mapping[str, Any], prefix: str) -> DictConfig:
    settings = [str(key) for key in structured]  # `in` would leave out those without a value
    for key in map(str, file) if "target" in settings else ():
        if key not in settings:
            raise UsageError(
                f"{prefix}{key} is no setting of {structured.target}; "
                f"it has: {', '.join(sorted({*settings} - {'target'}))}."
            )
    known = _flat_keys(structured) | _flat_keys(file)
    for key in [*map(str, file), *overrides]:
        if key not in known and not _inside_free_dict(structured, key):
            names = {f"{prefix}{k}" for k in known}
            raise unknown("key", f"{prefix}{key}", names)
    try:
        merged = OmegaConf.merge(structured, file)
        for key, value in overrides.items():
            OmegaConf.update(merged, key, value, force_add=_inside_free_dict(structured, key))
    except OmegaConfBaseException as error:
        key = error.full_key or error.key
        raise UsageError(f"{prefix}{key}: {str(error).splitlines()[0]}") from error
    assert isinstance(merged, DictConfig)
    return merged


def _flat_keys(config: DictConfig, prefix: str = "") -> set[str]:
    keys: set[str] = set()
    for key in config:
        keys.add(f"{prefix}{key}")
        if OmegaConf.is_missing(config, key):
            continue
        node = config[key]
        if isinstance(node, DictConfig):
            keys |= _flat_keys(node, f"{prefix}{key}.")
    return keys


def _inside_free_dict(structured: DictConfig, key: str) -> bool:
    """Whether `key` lies below a field that takes any mapping (as `segmenter` or `arch`)."""
    head, dot, _ = key.partition(".")
    return (
        bool(dot)
        and head in structured
        and not dataclasses.is_dataclass(OmegaConf.get_type(structured, head))
    )


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        if not equals or not key:
            raise UsageError(f"{argument!r} is not of the form key=value. Try --help.")
        try:
            value = OmegaConf.from_dotlist([argument.replace(key, "value", 1)])["value"]
        except Exception as error:
            raise UsageError(
                f"{argument!r}: the value cannot be read: {str(error).splitlines()[0]}"
            ) from error
        parsed[key] = value
    return parsed


def _read(file: Path) -> DictConfig:
    try:
        loaded = OmegaConf.load(file)
    except Exception as error:
        raise UsageError(f"{file}: not readable as YAML: {error}") from error
    if not isinstance(loaded, DictConfig):
        raise UsageError(f"{file}: a configuration file holds a mapping.")
    return loaded


def _lenient(root_schema: Any) -> type:
    """The dataclass without its `__post_init__`, so that it can hold values still missing."""
    fields: list[Any] = []
    for field in dataclasses.fields(root_schema):
        kind = get_type_hints(root_schema)[field.name]
        if dataclasses.is_dataclass(kind):
            kind = _lenient(kind)
        default = "???" if field.default is dataclasses.MISSING else field.default
        fields.append((field.name, kind, dataclasses.field(default=default)))
    return dataclasses.make_dataclass(root_schema.__name__, fields)


def _check_missing(config: Any) -> None:
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise UsageError(f"No value for {', '.join(missing)}: give it in the file or as key=value.")
