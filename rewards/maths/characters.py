# ruff: noqa: RUF001 (the look-alikes are the point)
"""Unicode mathematics to the ASCII and LaTeX that the parser reads."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙₖᵢⱼ", "0123456789+-nkij")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙₖᵢⱼ]+")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}

_SYMBOLS = str.maketrans(
    {
        **dict.fromkeys("−‐‑‒–—﹣－", "-"),
        **dict.fromkeys("×✕✖", r"\times "),
        **dict.fromkeys("·⋅∙•", r"\cdot "),
        **dict.fromkeys("∶：", ":"),
        **dict.fromkeys("’′ʹ", "'"),
        "÷": r"\div ",
        "∕": "/",
        "⁄": "/",
        "√": r"\sqrt ",
        "∛": r"\sqrt[3] ",
        "∜": r"\sqrt[4] ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "⩽": r"\le ",
        "≥": r"\ge ",
        "⩾": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "∖": r"\setminus ",
        "∠": r"\angle ",
        "°": r"^\circ ",
        "º": r"^\circ ",
        "…": r"\ldots ",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "ℝ": r"\mathbb{R}",
        "∑": r"\sum ",
        "∫": r"\int ",
        "∏": r"\prod ",
    }
)
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho",
    "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
    "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi",
    "Ω": "Omega",
}  # fmt: skip
_LETTERS = str.maketrans({letter: f"\\{name} " for letter, name in _GREEK.items()})
_SPACES = str.maketrans(dict.fromkeys("\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u200a\u3000", " "))
_INVISIBLE = str.maketrans(dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u2061\u2062\u2063"))


def to_latex(text: str) -> str:
    """Return `text` with mathematical characters written as LaTeX; no-break and thin spaces are kept.

    Superscripts are mapped before compatibility normalisation, which would turn `x²` into `x2`.
    """
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run.group().translate(_SUPERSCRIPTS)}}}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{run.group().translate(_SUBSCRIPTS)}}}", text)
    text = text.translate(_INVISIBLE).translate(_SPACES).translate(_FULL_WIDTH)
    text = text.translate(_SYMBOLS).translate(_LETTERS)
    return "".join(map(_compatible, text))


def _compatible(character: str) -> str:
    """Return a character's compatible form: `½` as a fraction, a bold or full-width letter as a plain one."""
    if character.isascii() or character in "\u00a0\u2007\u2009\u202f":
        return character
    plain = unicodedata.normalize("NFKC", character)
    numerator, slash, denominator = plain.partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}" if slash and denominator else plain
