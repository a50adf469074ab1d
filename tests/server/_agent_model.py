"""A model for tests of tools: random weights, the bundled tokenizer with a family's tokens, and a
template that is as small as the family's habits allow.

    _agent_model.py ROOT OUT FAMILY       families: plain, deepseek_v3, kimi_k2, glm47
"""
import json
import os
import sys

BAR, LOW = "\uff5c", "\u2581"


def ds(name):
    return f"<{BAR}{name.replace(' ', LOW)}{BAR}>"


LOOP = "{% for m in messages %}"
END = "{% endfor %}"
THINK = [("<think>", False), ("</think>", False)]
FAMILIES = {
    # knows no tools: the server declares them and reads calls as Hermes writes them
    "plain": ([], None),
    "deepseek_v3": (
        [(ds("User"), False), (ds("Assistant"), False)] + THINK +
        [(ds(t), False) for t in ("tool calls begin", "tool calls end", "tool call begin", "tool call end",
                                  "tool sep", "tool output begin", "tool output end")],
        LOOP + "{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}" + ds("User") + "{{ m.content }}"
        "{% elif m.role == 'tool' %}" + ds("tool output begin") + "{{ m.content }}" + ds("tool output end") +
        "{% else %}" + ds("Assistant") + "{{ m.content or '' }}{% if m.tool_calls %}" + ds("tool calls begin") +
        "{% for c in m.tool_calls %}" + ds("tool call begin") + "function" + ds("tool sep") +
        "{{ c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}" + ds("tool call end") + "{% endfor %}" +
        ds("tool calls end") + "{% endif %}<|eos|>{% endif %}" + END +
        "{% if add_generation_prompt %}" + ds("Assistant") + "{% if thinking %}<think>{% endif %}{% endif %}"),
    "kimi_k2": (
        [(f"<|{t}|>", True) for t in ("im_system", "im_user", "im_assistant", "im_middle", "im_end")] + THINK +
        [(f"<|{t}|>", True) for t in ("tool_calls_section_begin", "tool_calls_section_end", "tool_call_begin",
                                      "tool_call_argument_begin", "tool_call_end")],
        "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}" + LOOP +
        "<|im_{{ m.role if m.role in ['user', 'assistant'] else 'system' }}|>{{ m.name or m.role }}<|im_middle|>"
        "{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}\n{% endif %}"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
        "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}"
        "<|tool_call_argument_begin|>{{ c.function.arguments if c.function.arguments is string else "
        "c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}<|im_end|>" + END +
        "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"),
    "glm47": (
        [(f"<|{t}|>", True) for t in ("system", "user", "assistant", "observation")][3:] + THINK +
        [(t, False) for t in ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                              "<tool_response>", "</tool_response>")],
        "{% if tools %}<|system|># Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}" + LOOP +
        "{% if m.role == 'tool' %}<|observation|><tool_response>{{ m.content }}</tool_response>{% else %}<|{{ m.role }}|>"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
        "<arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}</tool_call>"
        "{% endfor %}{% endif %}" + END +
        "{% if add_generation_prompt %}<|assistant|>{{ '</think>' if enable_thinking is defined and not enable_thinking "
        "else '<think>' }}{% endif %}"),
}


def make(root, out, family):
    added, template = FAMILIES[family]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(root, "models/nibble-tiny/tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    with open(os.path.join(root, "models/nibble-tiny/tokenizer_config.json"), encoding="utf-8") as f:
        config = json.load(f)
    n = 4096
    for text, special in added:
        tokenizer["added_tokens"].append({"id": n, "content": text, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": special})
        n += 1
    if template:
        config["chat_template"] = template
    with open(os.path.join(root, "tests/parity/v3/config.json"), encoding="utf-8") as f:
        model = json.load(f)
    model.update(vocab_size=n, num_hidden_layers=1, first_k_dense_replace=1, bos_token_id=0, eos_token_id=1)
    for name, doc in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("config.json", model)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(doc, f)


if __name__ == "__main__":
    make(*sys.argv[1:4])
