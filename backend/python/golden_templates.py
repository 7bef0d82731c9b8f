"""Writes backend/src/prompt/testing/rendered.json: what jinja2, set up as `transformers` does it, makes of the test templates.

    pip install jinja2
    python golden_templates.py
"""

import json
import pathlib

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).parent.parent / "src/prompt/testing"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks <hard> & \"long\".\nTwice.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Łódź", "東京"]}, "far": {"type": ["number", "null"], "default": 1e-05}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
CALL = {"name": "look", "arguments": {"city": "Łódź's \"<b>\"", "far": 1.0, "deep": {"list": [1, 2.5, None, True, 10000000000000000.0], "empty": {}}}}
SYSTEM = {"role": "system", "content": " Be good. "}
USER = {"role": "user", "content": "  What's <up>?\n"}
ANSWER = {"role": "assistant", "content": "Nothing & \"all\". "}
CALLING = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": CALL}]}
THINKING = {"role": "assistant", "content": "So.", "reasoning_content": "Hm."}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "{\"c\": -3}\n\tZażółć"}

CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, ANSWER, USER],
    [SYSTEM, USER, CALLING, RESULT],
    [USER, CALLING, RESULT, ANSWER, USER],
    [SYSTEM, USER, CALLING, RESULT, RESULT, THINKING],
    [USER, USER],
]


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main() -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    settings = [
        {"tools": None, "add_generation_prompt": True},
        {"tools": TOOLS, "add_generation_prompt": False, "tools_in_user_message": False, "date_string": "05 Jul 2024"},
    ]
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = environment.from_string(path.read_text(encoding="utf-8"))
        for conversation, messages in enumerate(CONVERSATIONS):
            for setting, more in enumerate(settings):
                context = {"messages": messages, "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"} | more
                try:
                    text = template.render(**context)
                except Refused as refusal:
                    text = f"! {refusal}"
                cases.append([path.stem, conversation, setting, text])
    parts = {"conversations": CONVERSATIONS, "settings": settings, "cases": cases}
    lines = ",\n".join(
        json.dumps(name) + ": [\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in part) + "\n]" for name, part in parts.items()
    )
    (FOLDER / "rendered.json").write_text(f"{{{lines}}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
