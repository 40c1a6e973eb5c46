"""Maths word problems and competitions with a final answer.

Data sets and splits, the prompt, and the judge, which compares the answer by math-verify in a worker process
(`tasks/workers`), because parsing a model's answer may hang. No credit, no sampling."""
