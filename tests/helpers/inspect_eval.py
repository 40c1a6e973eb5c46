"""`python inspect_eval.py FOLDER`, where inspect_ai is installed: the JSON log of a scripted model that calls a tool."""

from __future__ import annotations

import sys

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool

ANSWERS = ["it is 7", "5", "5", "6"]
"""Of four attempts at the one sample. The second and the third are right."""


@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: the first
            y: the second
        """
        return x + y

    return execute


def main(folder: str) -> None:
    outputs = []
    for answer in ANSWERS:
        call = ModelOutput.for_tool_call("mockllm/model", "add", {"x": 2, "y": 3})
        outputs += [call, ModelOutput.from_content("mockllm/model", answer)]
    for output in outputs:
        output.usage = ModelUsage()  # or it is counted, with a tokenizer from the network
    task = Task(
        dataset=[Sample(input="What is 2 + 3? </script>", target="5", id="sum")],
        solver=[system_message("You add."), use_tools(add()), generate()], scorer=includes(), name="sums",
    )  # fmt: skip
    model = get_model("mockllm/model", custom_outputs=outputs)
    settings = {"log_format": "json", "log_dir": folder, "display": "none", "max_samples": 1}
    (log,) = evaluate(task, model=model, epochs=len(ANSWERS), **settings)
    assert log.status == "success", log.error


if __name__ == "__main__":
    main(sys.argv[1])
