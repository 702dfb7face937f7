"""Whether two answers are the same, by their types. Symmetric: every rule treats both sides alike."""

from __future__ import annotations

from rewards.maths import expressions, nodes, regions
from rewards.maths.canonical import canonical
from rewards.maths.nodes import Node, Unsupported
from rewards.maths.relations import definition, same_relation

_ORDERED = ("tuple", "list", "interval")
EXPRESSIONS = (
    *("number", "constant", "symbol", "add", "multiply", "divide", "power", "negate", "factorial"),
    *("absolute", "root", "function", "degrees", "quantity"),
)
_REGIONS = ("relation", "union", "intersection", "difference", "interval", "reals")


def equal(one: Node, other: Node) -> bool:
    """Whether two parsed answers are the same answer.

    Raises:
        Undefined, Unsupported: one of them has no value that could be compared.
    """
    return _equal(canonical(one), canonical(other))


def _equal(one: Node, other: Node) -> bool:
    one, other = _unnamed(one, other)
    for rule in (_definitions, _regions, _collections, _ordered, _marked, _quantities):
        verdict = rule(one, other)
        if verdict is not None:
            return verdict
    return False


def _definitions(one: Node, other: Node) -> bool | None:
    """Compare equations, by value if both define one name, else up to a factor; drop a name on one side."""
    first, second = definition(one), definition(other)
    if first and second:
        if first[0] == second[0] or "words" in (first[0], second[0]):
            return _equal(canonical(first[1]), canonical(second[1]))
        return same_relation(one, other)
    if one.kind == "relation" and other.kind == "relation":
        if one.value == other.value == ("=",):
            return same_relation(one, other)
        return _inequalities(one, other)
    if first and other.kind != "relation" and _droppable(first[1], other):
        return _equal(canonical(first[1]), other)
    if second and one.kind != "relation" and _droppable(second[1], one):
        return _equal(one, canonical(second[1]))
    return None


def _droppable(value: Node, other: Node) -> bool:
    """Whether `name = value` may stand for its value: not for a region, where it is one point of it."""
    return other.kind not in _REGIONS or value.kind in _REGIONS


def _inequalities(one: Node, other: Node) -> bool | None:
    """Compare inequalities in several symbols, which describe no set of reals."""
    if len(nodes.symbols(one)) < 2 and len(nodes.symbols(other)) < 2:
        return None
    return same_relation(one, other)


def _regions(one: Node, other: Node) -> bool | None:
    """Compare sets of reals if one side can be nothing else."""
    if not (_is_region(one) or _is_region(other)):
        return None
    left, right = regions.region(one), regions.region(other)
    if left is None or right is None:
        return False
    return regions.same(left, right)


def _is_region(node: Node) -> bool:
    if node.kind == "items":
        return any(arg.kind in _REGIONS and definition(arg) is None for arg in node.args)
    return node.kind in _REGIONS and definition(node) is None


def _collections(one: Node, other: Node) -> bool | None:
    """Compare unordered collections by matching; a set of one is its member."""
    first, second = _members(one), _members(other)
    if first is None and second is None:
        return None
    if "text" in (one.kind, other.kind) or (one.kind in _ORDERED) != (other.kind in _ORDERED):
        return (
            _bare_list(one, other) if {one.kind, other.kind} == {"list", "items"} else _singleton(one, other)
        )
    left, right = first or (one,), second or (other,)
    if first == () or second == ():
        return first == second
    return _match(list(left), list(right))


def _singleton(one: Node, other: Node) -> bool:
    """Compare a collection with a tuple or words: the same only if they are its one member."""
    collection, single = (one, other) if _members(one) is not None else (other, one)
    members = _members(collection) or ()
    return len(members) == 1 and _equal(members[0], single)


def _bare_list(one: Node, other: Node) -> bool:
    """Compare `[1, 3, 7]` with `1, 3, 7`: brackets fix the order."""
    return len(one.args) == len(other.args) and all(map(_equal, one.args, other.args))


def _members(node: Node) -> tuple[Node, ...] | None:
    return node.args if node.kind in ("set", "items") else None


def _unnamed(one: Node, other: Node) -> tuple[Node, Node]:
    """Drop names that one side alone gives: `x = 2 or x = -3` is `2, -3`, `x = 2, y = -1` is `(2, -1)`."""
    first, second = _assignments(one), _assignments(other)
    if first and second is None:
        return _values(first, other), _values(first, other, keep=True)
    if second and first is None:
        return _values(second, one, keep=True), _values(second, one)
    return one, other


def _assignments(node: Node) -> list[tuple[str, Node]] | None:
    """Return names and values of `x = 2, y = -1` or `(x, y) = (2, -1)`; None for anything else."""
    if node.kind == "items":
        found = [definition(arg) for arg in node.args]
        return [pair for pair in found if pair] if all(found) else None
    pair = definition(node)
    if pair is None or pair[1].kind != "tuple" or not pair[0].startswith("("):
        return None
    names = pair[0].strip("()").split(",")
    return list(zip(names, pair[1].args, strict=True)) if len(names) == len(pair[1].args) else None


def _values(pairs: list[tuple[str, Node]], other: Node, *, keep: bool = False) -> Node:
    """Return the named values in the form of `other`, or `other` itself."""
    if keep:
        return other
    values = tuple(canonical(value) for _, value in pairs)
    names = [name for name, _ in pairs]
    if other.kind == "tuple" and names == sorted(set(names)):
        return Node("tuple", values)
    return Node("items", values, ",")


def _match(left: list[Node], right: list[Node]) -> bool:
    """Pair every member with an equal one; equality is transitive, so the first partner found will do."""
    if len(left) != len(right):
        return False
    for member in left:
        partner = next((at for at, candidate in enumerate(right) if _equal_or_not(member, candidate)), None)
        if partner is None:
            return False
        del right[partner]
    return True


def _equal_or_not(one: Node, other: Node) -> bool:
    """Compare two members; two that cannot be compared do not match."""
    try:
        return _equal(one, other)
    except Unsupported:
        return False


def _ordered(one: Node, other: Node) -> bool | None:
    """Compare tuples, lists and matrices entry by entry."""
    if one.kind == "matrix" or other.kind == "matrix":
        return one.kind == other.kind and one.value == other.value and _entries(one, other)
    if one.kind not in _ORDERED and other.kind not in _ORDERED:
        return None
    if one.kind != other.kind and len(one.args) < 3:
        return False
    return one.kind in _ORDERED and other.kind in _ORDERED and _entries(one, other)


def _entries(one: Node, other: Node) -> bool:
    return len(one.args) == len(other.args) and all(map(_equal, one.args, other.args))


def _marked(one: Node, other: Node) -> bool | None:
    """Compare words, times, remainders, base-n numerals and ratios."""
    kinds = {one.kind, other.kind}
    if kinds <= {"time"}:
        return one.value[:2] == other.value[:2] and (
            one.value[2] == other.value[2] or not one.value[2] or not other.value[2]
        )
    if kinds & {"text", "remainder"}:
        return one.kind == other.kind and one.value == other.value
    if kinds & {"time", "ratio"}:
        return _ratios(_as_ratio(one), _as_ratio(other))
    if "base" in kinds:
        return _bases(one, other)
    return None


def _as_ratio(node: Node) -> tuple[Node, ...] | None:
    if node.kind == "ratio":
        return node.args
    if node.kind == "time" and not node.value[2]:
        return nodes.number(node.value[0]), nodes.number(node.value[1])
    return (node, nodes.number(1)) if node.kind in EXPRESSIONS and node.kind != "quantity" else None


def _ratios(one: tuple[Node, ...] | None, other: tuple[Node, ...] | None) -> bool:
    """Whether two ratios have proportional terms."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(
        expressions.same(Node("multiply", (one[0], theirs)), Node("multiply", (other[0], ours)))
        for ours, theirs in zip(one[1:], other[1:], strict=True)
    )


def _bases(one: Node, other: Node) -> bool:
    """Compare base-n numerals by value; one without its base by its digits."""
    if one.kind == other.kind:
        return int(one.value[0], one.value[1]) == int(other.value[0], other.value[1])
    marked, bare = (one, other) if one.kind == "base" else (other, one)
    return bare.kind == "number" and bare.value == int(marked.value[0])


def _quantities(one: Node, other: Node) -> bool | None:
    """Compare expressions, with a unit on one side at most or the same on both."""
    if one.kind not in EXPRESSIONS or other.kind not in EXPRESSIONS:
        return False
    first, second = _unit(one), _unit(other)
    if first[1] and second[1] and first[1] != second[1]:
        return False
    return expressions.same(first[0], second[0])


def _unit(node: Node) -> tuple[Node, str]:
    return (node.args[0], node.value) if node.kind == "quantity" else (node, "")
