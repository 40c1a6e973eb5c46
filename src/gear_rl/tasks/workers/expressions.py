"""What `eval`, `exec` and `compile` may do while an answer is judged: arithmetic, literals and named mathematical functions.

reasoning-gym's verifiers call `eval` on answers (string_insertion, spiral_matrix, binary_matrix, n_queens), and sympy's
`parse_expr` ends in it (countdown, puzzle24, the integrals, polynomial_multiplication, math-verify). `install` replaces the
builtins in the process of one answer. A text outside the list below raises `Refused`, so the answer is wrong.
"""

import ast
import builtins
import contextlib
import math
import re
import sys
import types
from collections.abc import Iterable
from typing import Any

LONGEST = 200_000
"""Characters of code. sympy writes `Integer (1 )` for 1, so an answer of 20,000 grows tenfold."""
MOST_NODES = 50_000
DEEPEST = 1_000
MOST_BITS = 2**17
"""Of any number on the way: 9**9**9 is refused before it is computed."""
TRUSTED = frozenset(
    "importlib._bootstrap importlib._bootstrap_external ast collections dataclasses enum typing sympy.polys.monomials".split()
)
"""Modules that run code of their own making, with no part of an answer in it."""
IMPORT_OF_SYMPY = "from sympy import *"
_BUILD = frozenset("Symbol Function Integer Float Rational Add Mul Pow".split())
"""What sympy's parser puts around names and numbers; the only calls that may be given a string."""
FUNCTIONS = _BUILD | frozenset(
    "Abs abs sign sqrt cbrt root real_root exp log ln sin cos tan cot sec csc asin acos atan acot asec acsc atan2 "
    "sinh cosh tanh coth sech csch asinh acosh atanh acoth asech acsch sinc floor ceiling frac factorial factorial2 "
    "subfactorial binomial Mod Max Min max min gcd lcm re im conjugate arg gamma beta loggamma digamma zeta erf "
    "erfc erfi Ei Si Ci Shi Chi li Li fresnels fresnelc lowergamma uppergamma LambertW Heaviside Eq Ne Lt Le Gt Ge "
    "Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan And Or Not Xor Piecewise Integral "
    "Derivative".split()
)
CONSTANTS = frozenset("pi E I oo zoo nan true false GoldenRatio EulerGamma Catalan".split())
FAST_GROWING = frozenset("factorial factorial2 subfactorial binomial gamma Pow".split())
_SYMBOL = re.compile(r"(?!.*__)[^\W\d]\w{0,40}")
_NUMBER = re.compile(
    r"[0-9]{1,5000}(\.[0-9]{0,5000})?(e[-+]?[0-9]{1,4})?(/[0-9]{1,5000})?|\.[0-9]{1,5000}(e[-+]?[0-9]{1,4})?"
)
_GROUPS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor)
_SHIFTS = (ast.LShift, ast.RShift)

_eval, _exec, _compile = builtins.eval, builtins.exec, builtins.compile


class Refused(Exception):
    """A text that is no plain expression."""


def install() -> None:
    """For the rest of this process, which judges one answer and ends."""
    approved: list[types.CodeType] = []

    def guarded_compile(source: Any, filename: Any, mode: str, flags: int = 0, *rest: Any, **more: Any) -> Any:
        if _caller() in TRUSTED or (flags & ast.PyCF_ONLY_AST and isinstance(source, str) and len(source) <= LONGEST):
            return _compile(source, filename, mode, flags, *rest, **more)
        if mode != "eval":
            raise Refused("statements")
        approved.append(_compile(check(source, ()), filename, mode))
        return approved[-1]

    def guarded_eval(source: Any, names: Any = None, local: Any = None) -> Any:
        caller = _caller()
        if caller in TRUSTED:
            return _eval(source, names, local)
        by_sympy = caller == "sympy.parsing.sympy_parser"  # the only judge that passes names along
        if any(source is code for code in approved):
            approved[:] = [code for code in approved if code is not source]
        else:
            source = _compile(check(source, (local or {}) if by_sympy else None), "<answer>", "eval")
        return _eval(source, {**names, **(local or {}), "__builtins__": {}} if by_sympy else {"__builtins__": {}})

    def guarded_exec(source: Any, *rest: Any, **more: Any) -> None:
        if _caller() not in TRUSTED and source != IMPORT_OF_SYMPY:
            raise Refused("exec")
        _exec(source, *rest, **more)

    builtins.eval, builtins.exec, builtins.compile = guarded_eval, guarded_exec, guarded_compile


def _caller() -> str:
    return sys._getframe(2).f_globals.get("__name__", "")


def check(source: Any, names: Iterable[str] | None) -> ast.Expression:
    """The tree of a plain expression. `names`: what it may use besides sympy's functions; None: it may use no name at all."""
    if isinstance(source, str):
        if len(source) > LONGEST:
            raise Refused("too long")
        source = _compile(source.strip(), "<answer>", "eval", ast.PyCF_ONLY_AST)
    if not isinstance(source, ast.Expression):
        raise Refused(f"a {type(source).__name__}")
    reader = _Reader(frozenset() if names is None else FUNCTIONS | CONSTANTS | frozenset(names))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 5 * DEEPEST)
    try:
        reader.bits(source.body, 0)
    finally:
        sys.setrecursionlimit(limit)
    return source


class _Reader:
    """Walks a tree once, and bounds the numbers it would compute."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names, self.nodes = names, 0

    def bits(self, node: ast.AST, depth: int) -> int:
        """An upper bound of the size of the value, in bits; at least 1."""
        self.nodes += 1
        if self.nodes > MOST_NODES or depth > DEEPEST:
            raise Refused("too large")
        found = self._bits(node, depth + 1)
        if found > MOST_BITS:
            raise Refused("a number that is too large")
        return found

    def _bits(self, node: ast.AST, depth: int) -> int:
        if isinstance(node, ast.Constant):
            return _size(node.value)
        if isinstance(node, ast.Name) and node.id in self.names and "__" not in node.id:
            return 1  # a symbol: nothing is computed from it
        if isinstance(node, _GROUPS):
            parts = [*(node.keys or ()), *node.values] if isinstance(node, ast.Dict) else node.elts
            return max((self.bits(part, depth) for part in parts if part is not None), default=1)
        if isinstance(node, ast.UnaryOp):
            return self._number(node.operand, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC + _SHIFTS):
            return self._operation(node, depth)
        if isinstance(node, ast.BoolOp):
            return max(self._number(value, depth) for value in node.values)
        if isinstance(node, ast.Compare):
            return max(self._number(value, depth) for value in (node.left, *node.comparators))
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        raise Refused(type(node).__name__)

    def _number(self, node: ast.AST, depth: int) -> int:
        """Texts and lists are compared whole, never computed with: 'a' * 10**9 is memory, and '%s' % x is code."""
        if isinstance(node, _GROUPS) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
            raise Refused("arithmetic with what is no number")
        return self.bits(node, depth)

    def _operation(self, node: ast.BinOp, depth: int) -> int:
        left, right = self._number(node.left, depth), self._number(node.right, depth)
        if isinstance(node.op, ast.Pow):
            return left * _at_most(node.right, right)
        if isinstance(node.op, ast.LShift):
            return left + _at_most(node.right, right)
        return left + right if isinstance(node.op, (ast.Mult, ast.Div)) else max(left, right) + 1

    def _call(self, node: ast.Call, depth: int) -> int:
        made = node.func
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "Function":
            self._call(made, depth)  # sympy's parser writes f(x) as Function('f')(x)
            name = ""
        elif isinstance(made, ast.Name) and made.id in self.names & FUNCTIONS:
            name = made.id
        else:
            raise Refused("a call")
        for keyword in node.keywords:  # sympy's evaluateFalse
            if keyword.arg != "evaluate" or not isinstance(keyword.value, ast.Constant):
                raise Refused("a keyword")
        sizes = []
        for argument in node.args:
            text = argument.value if isinstance(argument, ast.Constant) else None
            if isinstance(text, str):
                if not (_SYMBOL if name in ("Symbol", "Function") else _NUMBER).fullmatch(text) or name not in _BUILD:
                    raise Refused("a text")
                sizes.append(4 + 4 * len(text))
            else:
                sizes.append(self.bits(argument, depth))
        if name == "Symbol":
            return 1
        if name in FAST_GROWING:
            top = max((_at_most(argument, size) for argument, size in zip(node.args, sizes, strict=True)), default=1)
            return max(sizes, default=1) * top
        return sum(sizes) + 1


def _size(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return max(1, value.bit_length())
    if isinstance(value, float) and math.isfinite(value):
        return max(1, math.frexp(value)[1])
    if isinstance(value, (str, bytes)):
        return 1
    raise Refused(f"a constant {type(value).__name__}")


def _at_most(node: ast.AST, bits: int) -> int:
    """How large a value of so many bits can be; exact for a plain number, also as sympy's parser wraps it."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Call) and len(node.args) == 1 and getattr(node.func, "id", "") in ("Integer", "Float"):
        node = node.args[0]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
        with contextlib.suppress(ValueError, OverflowError):  # no number after all, or an endless one
            return max(1, math.ceil(abs(float(node.value))))
    return 2 ** min(bits, 64)
