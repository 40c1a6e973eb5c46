"""ACEBench (English) in its published layout → rows: data_<category>.json and possible_answer/data_<category>.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError, unknown_name
from gear_rl.tasks.base import Row
from gear_rl.tasks.schemas import as_tool
from gear_rl.tasks.tools.acebench.judge import function_name
from gear_rl.tasks.upstream import read_rows

NORMAL = (
    "normal_atom_bool", "normal_atom_enum", "normal_atom_list", "normal_atom_number", "normal_atom_object_deep",
    "normal_atom_object_short", "normal_multi_turn_user_adjust", "normal_multi_turn_user_switch", "normal_preference",
    "normal_similar_api", "normal_single_turn_parallel_function", "normal_single_turn_single_function",
)  # fmt: skip
SPECIAL = ("special_error_param", "special_incomplete", "special_irrelevant")
AGENT = ("agent_multi_step", "agent_multi_turn")
GROUPS = {"all": NORMAL + SPECIAL + AGENT, "normal": NORMAL, "special": SPECIAL, "agent": AGENT}
GET_IT = "Clone github.com/chenchen0103/ACEBench (MIT) and give its folder data_all/data_en."
SYSTEM = """You decide which functions to call for the user, from the conversation so far.
Call every function that is needed now, with arguments taken from the conversation; do not guess what was not said.
If a call cannot be made, answer with one of these sentences instead, filled in:
- A value in the conversation does not fit its parameter: There is incorrect value (VALUE) for the parameters (PARAMETER) \
in the conversation history.
- A required value was not given: Missing necessary parameters (PARAMETER, PARAMETER) for the api (FUNCTION)
- No function fits the request: Due to the limitations of the function, I cannot solve this problem."""
_SPEAKER = re.compile(r"^(user|system)[:：]\s*", re.M)


def chosen_categories(option: str) -> list[str]:
    found: list[str] = []
    for part in (name.strip() for name in option.split(",")):
        if part not in GROUPS and part not in GROUPS["all"]:
            raise unknown_name("ACEBench category", part, (*GROUPS, *GROUPS["all"]))
        found += [name for name in GROUPS.get(part, (part,)) if name not in found]
    return found


def load_category(folder: Path, category: str) -> list[Row]:
    path = folder / f"data_{category}.json"
    answers_path = folder / "possible_answer" / path.name
    answers = {row["id"]: row["ground_truth"] for row in read_rows(answers_path, ("id", "ground_truth"))}
    rows = []
    for entry in read_rows(path, ("id", "question", "function")):
        if entry["id"] not in answers:
            raise GearError(f"{answers_path} has no answer for {entry['id']}.")
        try:
            rows.append(_row(category, entry, answers[entry["id"]]))
        except (KeyError, TypeError, AttributeError, StopIteration) as error:
            raise GearError(f"{path}, {entry['id']}: the entry is not in ACEBench's layout ({error!r}).") from None
    return rows


def _row(category: str, entry: dict[str, Any], truth: Any) -> Row:
    functions = entry["function"]
    about = [SYSTEM]
    about += [str(entry["time"])] if entry.get("time") else []
    about += [f"What is known about the user: {entry['profile']}"] if entry.get("profile") else []
    tools = [
        as_tool(f["name"].replace(".", "_"), f.get("description", ""), f.get("parameters") or f.get("arguments"))
        for f in functions
    ]
    reference = special_reference(category, truth) if category in SPECIAL else ""
    calls = [] if reference else reference_calls(truth, functions)
    together = entry["id"].rsplit("_", 1)[0] if "multi_turn" in category else entry["id"]
    return {
        "prompt": [{"role": "system", "content": "\n\n".join(about)}, *conversation(entry["question"])],
        "hint": reference or "\n".join(f"{call.name}({json.dumps(call.arguments)})" for call in calls),
        "answer": json.dumps(truth),
        "id": entry["id"],
        "category": category,
        "tools": json.dumps(tools),
        "functions": json.dumps(functions),
        "problem": together,
        "world": "",
    }


def conversation(text: str) -> list[dict[str, str]]:
    """ "user: …\\nsystem: …\\nuser: …" as messages. The benchmark calls the assistant "system"."""
    marks = list(_SPEAKER.finditer(text))
    if not marks or marks[0].start() > 0 or marks[-1][1] != "user":
        return [{"role": "user", "content": text.strip()}]
    messages: list[dict[str, str]] = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        content = text[mark.end() : following.start() if following else None].strip()
        role = "user" if mark[1] == "user" else "assistant"
        if messages and messages[-1]["role"] == role:  # chat templates want them to alternate
            messages[-1]["content"] += f"\n{content}"
        else:
            messages.append({"role": role, "content": content})
    return messages


def reference_calls(truth: Any, functions: list[dict[str, Any]]) -> list[ToolCall]:
    first = truth[0] if isinstance(truth, list) else truth
    return [ToolCall(function_name(key, functions).replace(".", "_"), arguments) for key, arguments in first.items()]


def special_reference(category: str, truth: Any) -> str:
    if category == "special_irrelevant":
        return "Due to the limitations of the function, I cannot solve this problem."
    if category == "special_incomplete":
        return "\n".join(
            f"Missing necessary parameters ({', '.join(map(str, names))}) for the api ({api})"
            for api, names in truth.items()
        )
    return "\n".join(
        f"There is incorrect value ({', '.join(map(str, values))}) for the parameters ({key}) in the conversation history."
        for key, values in truth.items()
    )
