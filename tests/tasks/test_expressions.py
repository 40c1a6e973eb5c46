"""What text `eval` accepts while an answer is judged."""

import pytest

from gear_rl.tasks.workers.expressions import Refused, check


@pytest.mark.parametrize("text", ["[1, -2.5, 'a', None, True]", "{'a': (1, 2), 'b': {3}}", " 0x1f + 3*(2 - 7)//4", "1 < 2 <= 3",
                                  "2**100", "10**-3", "1 << 10", "[[1, 0], [0, 1]]", "+".join(["1"] * 300)])  # fmt: skip
def test_literals_and_arithmetic(text):
    assert eval(compile(check(text, None), "", "eval"), {"__builtins__": {}}) == eval(text.strip())


@pytest.mark.parametrize("text", ["Integer(2)*Symbol('x')**Integer(2)", "sin(x)/Function('f')(x)", "Float('2.5')", "pi*sqrt(2)",
                                  "Add(Integer(1), Pow(x, Integer(3), evaluate=False), evaluate=False)", "factorial(20)",
                                  "exp(-x**10)*x**Float('2.5')", "E**x**2", "Integral(x**2*sin(2*x), x) + C"])  # fmt: skip
def test_what_sympys_parser_writes(text):
    check(text, {"x": None, "C": None})


@pytest.mark.parametrize(
    "text",
    ["x", "print", "print(1)", "a.b", "a[0]", "lambda: 1", "[i for i in (1,)]", "f'{1}'", "(a := 1)", "1 if 2 else 3", "*a,",
     "__import__", "__import__('os')", "'a' * 9", "'%s' % 1", "[1] * 9", "[1] + [2]", "b'a' * 9", "...", "1j", "sin(1)",
     "9**9**9", "2**(2**40)", "1 << 10**9", "(10**5)**(10**5)", "await x", "yield", "import os", "x = 1", "", "1;2", "\0"],
)  # fmt: skip
def test_everything_else_is_refused(text):
    with pytest.raises((Refused, SyntaxError, ValueError)):
        check(text, None)


@pytest.mark.parametrize(
    "text",
    ["Symbol('x').__class__", "Symbol('__class__')", "Symbol('x; y')", "sin('1')", "Integer('1+1')", "Rational('1e999999999')",
     "Symbol(name='x')", "Symbol('x', **{})", "sin(*[1])", "sympify('1')", "parse_expr('1')", "lambdify(1, 2)", "Lambda(x, x)",
     "S('1')", "preview(x)", "Function('f')('x')", "x(1)", "sin(1)(2)", "factorial(10**9)", "gamma(10**12)",
     "Pow(9, Pow(9, 9))", "Integer(9)**Integer(9)**Integer(9)", "eval('1')", "open('x')", "getattr(x, 'y')", "True.real"],
)  # fmt: skip
def test_sympys_names_are_a_short_list(text):
    with pytest.raises((Refused, SyntaxError)):
        check(text, {"x": None})
