"""Reading question-answer data from a local file or a hub name, with errors that name the line."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vineenv.errors import UsageError, nearest

FORMATS = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Fields:
    """Which fields of a row hold what; of several names the first that the row has counts.

    Where a row has no answer field, `from_solution` finds it in the worked solution.
    """

    problem: tuple[str, ...] = ("problem", "question")
    answer: tuple[str, ...] = ("answer", "final_answer")
    solution: tuple[str, ...] = ("solution",)
    from_solution: Callable[[str], str | None] | None = None


@dataclass(frozen=True)
class Row:
    """One question; `where` is the file and line it came from."""

    problem: str
    answer: str
    solution: str | None
    meta: Mapping[str, Any]
    where: str


def find_file(path: str, name: str) -> str:
    """Return the file of a split: `path` itself, or `name` in it with one of the known endings.

    A path that does not exist and looks like `owner/name`, or `owner/name:configuration`, is a hub
    name and returned as it is.

    Raises:
        UsageError: there is no such file.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        return str(folder)
    if folder.is_dir():
        for ending in FORMATS:
            if (folder / f"{name}{ending}").is_file():
                return str(folder / f"{name}{ending}")
        there = sorted(p.name for p in folder.iterdir())
        hint = nearest(name, there)
        raise UsageError(
            f"{folder}: no {name} with an ending of {', '.join(FORMATS)}."
            + (f" Did you mean {hint!r}?" if hint else f" There: {', '.join(there[:10]) or 'nothing'}.")
        )
    if path.count("/") == 1 and not path.startswith((".", "/", "~")):
        return path
    raise UsageError(
        f"env.path={path!r}: no such file or folder. Give a folder with {name}.jsonl, a file "
        f"({', '.join(FORMATS)}), or a hub name like owner/name or owner/name:configuration."
    )


def load_rows(path: str, split: str, fields: Fields) -> tuple[Row, ...]:
    """Read all rows of a file (kept in memory while the file is unchanged) or of a hub data set.

    Raises:
        UsageError: an unreadable file, a malformed line, a missing or wrongly typed field, no rows.
    """
    file = Path(path)
    rows = _load(path, split, fields, file.stat().st_mtime_ns if file.is_file() else 0)
    if not rows:
        raise UsageError(f"{path}: no rows.")
    return rows


@functools.lru_cache(maxsize=8)
def _load(path: str, split: str, fields: Fields, _changed: int) -> tuple[Row, ...]:
    return tuple(_row(raw, where, fields) for where, raw in _raw_rows(path, split))


def _raw_rows(path: str, split: str) -> Iterator[tuple[str, Any]]:
    if path.endswith(".jsonl"):
        yield from _json_lines(path)
    elif path.endswith(".json"):
        yield from _json_list(path)
    elif path.endswith(".parquet"):
        yield from _parquet_rows(path)
    else:
        yield from _hub_rows(path, split)


def _parquet_rows(path: str) -> Iterator[tuple[str, Any]]:
    parquet = _need("pyarrow.parquet")
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for raw in batch.to_pylist():
                yield f"{path}: row {number}", raw
                number += 1
    except (ValueError, OSError) as error:  # what pyarrow's own errors derive from
        raise UsageError(f"{path}: not readable as parquet: {error}") from error


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, Any]]:
    datasets = _need("datasets")
    owner_and_name, _, config = name.partition(":")
    try:
        rows = datasets.load_dataset(owner_and_name, config or None, split=split)
    except Exception as error:  # the package's errors have no common ancestor
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{name}: the {split} split cannot be had from the hub: {reason}") from error
    yield from ((f"{name}[{split}]: row {i}", raw) for i, raw in enumerate(rows))


def _json_lines(path: str) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}: line {number}", _parse(line, f"{path}: line {number}")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: after line {number}: not UTF-8 text.") from error


def _json_list(path: str) -> Iterator[tuple[str, Any]]:
    try:
        loaded = _parse(Path(path).read_text(encoding="utf-8"), path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text.") from error
    if not isinstance(loaded, list):
        raise UsageError(f"{path}: expected a list of rows, found {type(loaded).__name__}.")
    yield from ((f"{path}: row {i}", raw) for i, raw in enumerate(loaded))


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{where}: not JSON ({error.msg} at line {error.lineno}, column {error.colno})."
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or of brackets
        raise UsageError(f"{where}: not JSON that can be read ({str(error).partition(':')[0]}).") from error


def _row(raw: Any, where: str, fields: Fields) -> Row:
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: expected an object with fields, found {type(raw).__name__}.")
    problem = _text(raw, fields.problem, where)
    solution = _text(raw, fields.solution, where) if any(name in raw for name in fields.solution) else None
    if fields.from_solution and solution and not any(name in raw for name in fields.answer):
        answer = fields.from_solution(solution) or ""
    else:
        answer = _text(raw, fields.answer, where)
    used = {*fields.problem, *fields.answer, *fields.solution}
    return Row(problem, answer, solution, {k: v for k, v in raw.items() if k not in used}, where)


def _text(raw: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    name = next((n for n in names if n in raw), None)
    if name is None:
        wanted = " or ".join(map(repr, names))
        raise UsageError(f"{where}: no field {wanted}; it has {', '.join(map(repr, raw)) or 'none'}.")
    value = raw[name]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        return ", ".join(v.strip().removeprefix("$").removesuffix("$") for v in value)
    if not isinstance(value, str):
        raise UsageError(f"{where}: field {name!r} must be text, not {type(value).__name__}.")
    return value


def _need(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UsageError(f"Reading this needs {package}: pip install 'vineenv[data]'.") from error
