r"""How an answer is written, before computer algebra reads it: one notation for what means the same, and what may not be equal.

math-verify takes letters for factors (`silent` = `listen`), the last side of an equation for the answer (`6=5`), and leaves
out units, bases and relations. What of that decides between right and wrong is decided here, on the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SIGNS = str.maketrans({
    "≠": r"\neq ", "≤": r"\leq ", "≥": r"\geq ", "∅": r"\emptyset ", "∞": r"\infty ", "π": r"\pi ", "×": r"\times ",
    "·": r"\cdot ", "→": r"\to ", "⇒": r"\Rightarrow ", "¬": r"\neg ", "−": "-", "–": "-", "≈": r"\approx ", "°": r"^\circ ",
})  # fmt: skip
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?")
_MIXED = re.compile(r"(?<![\d./,])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d/.])")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|math(?:rm|bf|it|sf|tt)|operatorname)\s*\{([^{}]*)\}")
_LIST = re.compile(
    r"\s*,?\s*(?:\\(?:text|mbox|textnormal)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![\\\w])(?:and|or)(?!\w))\s*,?\s*"
)
_GREEK = re.compile(r"\\(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|"
                    r"phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega|ell)(?![a-zA-Z])")  # fmt: skip
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_NEGATION = re.compile(
    r"\\(?:neq?|not\w*|neg|lnot|lor|vee|to|(?:[lL]ong)?[rR]ightarrow|implies|iff|mapsto)(?![a-zA-Z])|!="
)
_INEQUALITY = re.compile(r"<|>|\\(?:[lg](?:e|t|eq|eqq|eqslant)|ll|gg)(?![a-zA-Z])")
_RANGE = re.compile(r"\\(?:in|cup|cap|infty|mathbb)(?![a-zA-Z])|[(\[][^()\[\]]*,[^()\[\]]*[)\]]")
_WORDS = re.compile(r"(?=.*[a-z]{2})[a-z\s,.()'-]+", re.IGNORECASE)
_BASED = re.compile(r"\(?(-?(?=[0-9a-z.]*\d)[0-9a-z.]+)\)?(?:_\s*\{?\s*\(?(\w+)\)?\s*\}?)?\.?", re.IGNORECASE)
_BASES = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}

_UNITS = {
    "m": "meter meters metre metres", "cm": "centimeter centimeters centimetre centimetres",
    "mm": "millimeter millimeters", "km": "kilometer kilometers kilometre kilometres", "in": "inch inches",
    "ft": "foot feet", "yd": "yard yards", "mi": "mile miles", "kg": "kilogram kilograms", "g": "gm gram grams",
    "mg": "milligram milligrams", "lb": "lbs pound pounds", "oz": "ounce ounces", "l": "liter liters litre litres",
    "ml": "milliliter milliliters", "gal": "gallon gallons", "s": "sec second seconds", "min": "minute minutes",
    "h": "hr hrs hour hours", "day": "days", "week": "weeks", "month": "months", "year": "yr years", "mph": "",
    "degree": "deg degrees", "dollar": "usd dollars", "cent": "cents", "unit": "units", "am": "", "pm": "",
}  # fmt: skip
"""Unit → its other names."""
_UNIT = {name: unit for unit, names in _UNITS.items() for name in (unit, *names.split())}
_FILLERS = {"square", "sq", "cubic", "unit", "of", "the", "per", "each", "a", "an", "and", "or"}
_SPACE, _POWER = r"\s*(?:\\[,;:! ]|~)*\s*", r"(?:\s*\^\s*\{?[23]\}?)?\.?$"
_BARE_UNIT = re.compile(
    rf"(?<=[\d}}).]){_SPACE}((?:(?:square|sq\.?|cubic) )?(?:{'|'.join(sorted(_UNIT, key=len, reverse=True))}))\.?{_POWER}",
    re.IGNORECASE,
)
_TEXT_AT_END = re.compile(rf"(?<=[\d}})\]a-z%]){_SPACE}\\(?:text\w*|mbox|mathrm)\s*\{{([^{{}}=]*)\}}{_POWER}")
_WORDS_AT_END = re.compile(r"(?<=\d)\s+([a-z]{3,}(?: [a-z]+)*)\.?$", re.IGNORECASE)


def normalised(text: str) -> str:
    r"""The same mathematics in the notation that math-verify reads.

    >>> [normalised(t) for t in ("6.02e23", r"0.\overline{3}", "1 1/2", r"1 \text{ or } 2", r"5\,\text{cm}")]
    ['6.02 \\cdot 10^{23}', '\\frac{3}{9}', '1\\frac{1}{2}', '1, 2', '5\\,\\text{cm}']
    """
    text = text.translate(_SIGNS).replace(r"\varnothing", r"\emptyset").strip().strip("$").strip()
    text = re.sub(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])", "", text)
    text = re.sub(r"^\\\{\s*\\\}$", r"\\emptyset", text)
    text = _REPEATING.sub(_fraction, text)
    text = _SCIENTIFIC.sub(lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"^[a-zA-Z]\s*\\in(?![a-zA-Z])\s*", "", text)
    return _LIST.sub(", ", text)


def _fraction(repeating: re.Match[str]) -> str:
    whole, fixed, repeated = repeating.groups()
    top = int(whole + fixed + repeated) - int((whole + fixed) or "0")
    return rf"\frac{{{top}}}{{{'9' * len(repeated)}{'0' * len(fixed)}}}"


def without_units(text: str) -> str:
    """`text` less a unit or words at its end."""
    for unit in (_TEXT_AT_END, _BARE_UNIT, _WORDS_AT_END):
        text = unit.sub("", text)
    return text


def without_thousands(text: str) -> str:
    """`x = 1,234` → `x = 1234`; a comma elsewhere may part two numbers."""
    return re.sub(r"=\s*([-+]?\d{1,3}(?:\{?,\}?\d{3})+)$", lambda m: "=" + re.sub(r"[{},]", "", m[1]), text)


def plain_words(text: str) -> str | None:
    r"""`\text{Listen}` → listen; None for anything that is not words. `xy` is a product: no word has these letters alone."""
    text = _TEXT.sub(r"\1", text).strip()
    if not _WORDS.fullmatch(text) or not set(text) - set("xyz "):
        return None
    return re.sub(r"[\s().'-]", "", text).lower()


def based(text: str) -> tuple[str, str] | None:
    """(digits, base) of `101_2`, and of `101` as of base 10; None for what is neither."""
    found = _BASED.fullmatch(_TEXT.sub(r"\1", text).strip())
    if not found:
        return None
    return found[1].lower().lstrip("0"), _BASES.get((found[2] or "10").lower(), found[2] or "10")


def contradict(reference: str, answer: str) -> bool:
    """Whether what computer algebra does not see keeps the two apart."""
    if _NEGATION.search(answer) and not _NEGATION.search(reference):
        return True
    if _INEQUALITY.search(answer) and not (_INEQUALITY.search(reference) or _RANGE.search(reference)):
        return True
    if {_bracket(reference), _bracket(answer)} == {"set", "tuple"}:
        return True
    units, given = _units(reference), _units(answer)
    return bool(units and given and not units & given)


def _bracket(text: str) -> str:
    r"""What a text as a whole is: \{1,2\} a set, (1,2) or [1,2] a tuple (or an interval), nothing else."""
    text = re.sub(r"\\([{}])", lambda m: {"{": "⟨", "}": "⟩"}[m[1]], text.strip())
    if len(text) < 2 or text[0] not in "⟨([" or "," not in text:
        return ""
    closed = next((i for i, depth in enumerate(_depths(text)) if depth == 0), -1)
    return ("set" if text[0] == "⟨" else "tuple") if closed == len(text) - 1 else ""


def _depths(text: str) -> Iterator[int]:
    """How many brackets are open after each character."""
    depth = 0
    for character in text:
        depth += (character in "([{⟨") - (character in ")]}⟩")
        yield depth


def split(text: str, sign: str) -> list[str]:
    """`text` cut at every `sign` that stands in no brackets."""
    parts, start, before = list[str](), 0, 0
    for i, depth in enumerate(_depths(text)):
        if text[i] == sign and depth == before == 0:
            parts.append(text[start:i].strip())
            start = i + 1
        before = depth
    return [*parts, text[start:].strip()]


def _units(text: str) -> set[str]:
    found = _BARE_UNIT.search(text)
    said = " ".join([*_TEXT.findall(text), found[1] if found else ""]).lower().replace(".", "")
    words = (_UNIT.get(word, word.rstrip("s")) for word in re.findall(r"[a-z]+", said))
    return {word for word in words if word not in _FILLERS}


def has_unknown(text: str) -> bool:
    """Whether there is a letter in it that is no constant: `x`, `f(2)`, `\\text{Area}`, but not `e^{i\\pi}`."""
    letters = re.sub(r"[^a-zA-Z]", "", _COMMAND.sub("", _GREEK.sub("x", _TEXT.sub(r"\1", text))))
    return (len(letters) == 1 and len(text.strip()) == 1) or bool(set(letters) - {"e", "i"})


def is_name(text: str) -> bool:
    """A letter, with or without an index or an argument."""
    return bool(re.fullmatch(r"[a-zA-Z](?:_\{?\w+\}?)?(?:\([^()]*\))?", _GREEK.sub("x", text.strip())))


def false_inside(text: str) -> bool:
    """Whether an equation within brackets begins with a value: `(6=5)` says something false, `(x=5)` names 5."""
    return any(not has_unknown(side) for side in re.findall(r"([^=,;&(){}\\]*)=", text))
