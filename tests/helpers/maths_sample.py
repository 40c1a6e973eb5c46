"""Problems of our own in the layouts of the published sets."""

import gzip
import json

ADD = "What is $2+3$? Draw it: [asy] draw((0,0)--(1,1)); [/asy]"


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def write(folder):
    """One folder with all of them, as a user's data folder may look."""
    gsm = [
        {"question": f"{n} apples and one more?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### 1,00{n}"}
        for n in range(9)
    ]
    lines(folder / "gsm8k" / "train.jsonl", gsm)
    lines(folder / "gsm8k" / "test.jsonl", gsm[:3])
    math = [
        {
            "problem": f"Solve ${n}x=1$.",
            "level": "Level 1",
            "type": "Algebra",
            "solution": f"So $\\boxed{{\\frac{{1}}{{{n}}}}}$.",
        }
        for n in range(1, 8)
    ]
    lines(folder / "math" / "train.jsonl.gz", [
        *math,
        {"problem": ADD, "type": "Prealgebra", "solution": "It is $\\boxed{5}$.", "answer": "{mangled}"},
        {"problem": "Unanswered.", "type": "Prealgebra", "solution": "It is $\\boxed{}$.", "answer": ""},
    ])  # fmt: skip
    test = [
        {
            "problem": "what is \\(2 + 3\\)? draw it: [asy]draw((0,0)--(1,1));[/asy]",
            "type": "Prealgebra",
            "solution": "$\\boxed 5$",
        }
    ]
    lines(folder / "math" / "test.jsonl.gz", test)
    lines(
        folder / "math" / "math500.jsonl",
        [{**test[0], "problem": "Find $\\pi$.", "subject": "Geometry", "solution": "$\\boxed{\\pi}$"}],
    )
    lines(
        folder / "math_eval" / "aime24.jsonl",
        [{"id": 60, "problem": "How many?", "solution": "So \\framebox{204}.", "answer": "204"}],
    )
    lines(folder / "math_eval" / "amc23.jsonl", [{"id": 0, "problem": "How far?", "answer": 27.0}])
    lines(folder / "aime25" / "test.jsonl", [{"problem": "Which base?", "answer": "70"}])
    lines(folder / "math_eval" / "olympiadbench.jsonl", [
        {"id": 1, "subfield": "Algebra", "context": None, "question": "All $x$?", "solution": ["$x=69$ or $84$"],
         "final_answer": ["$69$,$84$"], "is_multiple_answer": True, "unit": None, "answer_type": "Numerical", "error": None},
        {"id": 2, "subfield": "Geometry", "context": "A circle.", "question": "How long?", "solution": ["3.1"],
         "final_answer": ["3.1"], "is_multiple_answer": False, "unit": "km", "answer_type": "Numerical", "error": "1e-1"},
    ])  # fmt: skip
    (folder / "math_eval" / "aime_1983_2023_train.json").write_text(
        json.dumps([{"problem": "Find $w$.", "solution": "60", "answer": "60", "year": 1983}])
    )
    lines(folder / "dapo_math_17k" / "train.jsonl.gz", [
        {"idx": 0, "problem": "Old: find w", "answer": "34"},
        {"idx": 1, "problem": "find \\(w\\)", "answer": "60"},
        {"idx": 2, "problem": "HOW MANY", "answer": "204"},
        {"idx": 3, "problem": "New.", "answer": "7"},
    ])  # fmt: skip
    return folder
