"""Answers that try to run code, change the judge, leak, forge or exhaust: for test_hostile_answers.py."""

from __future__ import annotations

EVALUATING = (
    "string_insertion", "spiral_matrix", "binary_matrix", "n_queens",  # eval(answer)
    "simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown",  # parse_expr
)  # fmt: skip
"""The generators of reasoning-gym whose verifiers evaluate an answer."""


def code(mark: str) -> dict[str, str]:
    """Expressions that do something if they are run: create the file `mark`, or change how later answers are judged."""
    touch = f"__import__('os').open({mark!r}, 64)"
    patch = "setattr(__import__('reasoning_gym').data if 0 else __import__('builtins'), 'float', lambda *a: 1.0)"
    scores = (
        "[setattr(type(d), 'score_answer', lambda *a: 1.0) for d in __import__('gc').get_objects()"
        " if hasattr(type(d), 'score_answer') and not isinstance(d, type)]"
    )
    forged = "[__import__('os').write(fd, b'{\"score\": 1.0}\\n') for fd in range(1, 40)]"
    return {
        "open": touch,
        "open_builtin": f"open({mark!r}, 'w')",
        "system": f"__import__('os').system('touch {mark}')",
        "popen": f"__import__('subprocess').run(['touch', {mark!r}])",
        "pathlib": f"__import__('pathlib').Path({mark!r}).touch()",
        "nested_eval": f"eval({touch!r})",
        "exec": f"exec({touch!r})",
        "compile": f"eval(compile({touch!r}, '', 'eval'))",
        "pickle": f"__import__('pickle').loads(b'cos\\nsystem\\n(S\"touch {mark}\"\\ntR.')",
        "lambda": f"(lambda: {touch})()",
        "comprehension": f"[{touch} for _ in (1,)]",
        "walrus": f"(o := __import__('os'), o.open({mark!r}, 64))",
        "f_string": f"f\"{{__import__('os').open({mark!r}, 64)}}\"",
        "dunder_chain": f"[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'FileIO'][0]({mark!r}, 'w')",
        "getattr": f"getattr(__import__('os'), 'op' + 'en')({mark!r}, 64)",
        "format": "'{0.__class__.__base__}'.format(1)",
        "sympify": f"sympify({touch!r})",
        "parse_expr": f"parse_expr({touch!r})",
        "symbol": f"Symbol('x').__class__.__init__.__globals__['__builtins__']['open']({mark!r}, 'w')",
        "lambdify": f"lambdify((), 'open({mark!r}, chr(119))')()",
        "star": f"print(*[{touch}])",
        "ternary": f"{touch} if 1 else 2",
        "builtins": patch,
        "modules": "__import__('sys').modules.clear()",
        "scores": scores,
        "protocol": forged,
        "stdout": "__import__('sys').__stdout__.write('{\"score\": 1.0}')",
        "socket": f"(__import__('socket').socket(), {touch})",
        "environment": "[].index(dict(__import__('os').environ))",
        "parent": "[].index(open(f'/proc/{__import__(\"os\").getppid()}/environ').read())",
        "exit": "__import__('os')._exit(0)",
        "quit": "exit(0)",
        "kill": "__import__('os').kill(__import__('os').getppid(), 9)",
        "fork": "[__import__('os').fork() for _ in range(8)]",
        "sleep": "__import__('time').sleep(60)",
        "regex": "__import__('re').match('(a+)+$', 'a' * 60 + 'b')",
        "input": "input()",
        "breakpoint": "breakpoint()",
    }


EXHAUSTING = {
    "tower": "9**9**9**9",
    "power": "9**9**9",
    "shift": "1 << (1 << 60)",
    "factorial": "factorial(10**9)",
    "postfix_factorial": "9!!!!!!",
    "gamma": "gamma(10**12)",
    "binomial": "binomial(10**9, 10**8)",
    "memory": "'a' * 10**10",
    "list": "[0] * 10**10",
    "range": "list(range(10**12))",
    "expand": "(x + 1)**(10**9)",
    "digits": "9" * 20_000,
    "brackets": "(" * 5_000 + "1" + ")" * 5_000,
    "lists": "[" * 5_000 + "]" * 5_000,
    "minus": "-" * 19_000 + "1",
    "sum": "1+" * 9_000 + "1",
    "calls": "sin(" * 3_000 + "x" + ")" * 3_000,
    "float": "1e400 * 1e400 + 1e999999999",
    "surrogate": "\ud800\udfff \udc00",
    "nul": "1\x00+1\x00",
    "unicode": "𝟗**𝟗**𝟗**𝟗",
    "newlines": "1\n\n\r\n\x0b\x0c\x85\u2028+1",
    "forged_line": '{"token": "x", "value": {"score": 1.0}}\n{"score": 1.0}\n',
    "forged_tags": '</answer>\n{"score": 1.0}',
}
