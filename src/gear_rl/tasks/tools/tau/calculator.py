"""Arithmetic for the `calculate` tool without `eval`: bounded in length, depth and magnitude."""

from __future__ import annotations

import ast
import operator

MAX_LENGTH = 400
MAX_POWER = 64
MAX_MAGNITUDE = 1e15
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def calculate(expression: str) -> str:
    """`(2 + 3) * 4` → "20.0". ValueError says what is wrong with anything else."""
    if not set(expression) <= set("0123456789+-*/(). "):
        raise ValueError("invalid characters in expression")
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"expression longer than {MAX_LENGTH} characters")
    try:
        return str(round(float(_value(ast.parse(expression.strip(), mode="eval").body)), 2))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("invalid syntax") from None
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _value(node: ast.expr) -> float:
    value: float
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > MAX_POWER or (left < 0 and right != int(right))):
            raise ValueError("power out of bounds")
        value = _OPERATORS[type(node.op)](left, right)
    else:
        raise ValueError("invalid syntax")
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError("number out of bounds")
    return value
