/* template_v4.c - DeepSeek V4's prompts as a chat template.
 *
 * The published files have no template: the vendor's encoder is a program.  This one writes what that program writes:
 * tool results are parts of the user's turn, in the order of the calls; reasoning of earlier turns is left out where
 * no tools are declared; developer and latest_reminder are roles, and a message may have tools, response_format and
 * task of its own.  thinking (or enable_thinking) and reasoning_effort are template arguments.
 * Source: DeepSeek-V4's encoding_dsv4; test_chat_v4.c has prompts that it made. */
#include "text/chat.h"

/* m is the message in hand; a run of user and tool messages is one turn. */
#define DSML                                                                                       \
    "\xef\xbd\x9c"                                                                                 \
    "DSML"                                                                                         \
    "\xef\xbd\x9c"
#define SP(name) "<\xef\xbd\x9c" name "\xef\xbd\x9c>"

static const char text[] =
    "{%- set thinking = thinking if thinking is defined else (enable_thinking if enable_thinking is defined else false) -%}"
    "{%- set effort = reasoning_effort if reasoning_effort is defined else '' -%}"
    "{%- set ns = namespace(last=-1, any_tools=(tools is defined and tools), calls=[], sorted=[], next=0, run=false, first=0) -%}"
    /* ---- the last turn of the user, and whether tools are declared ---- */
    "{%- for m in messages -%}"
    "{%- if m['tools'] -%}{%- set ns.any_tools = true -%}{%- endif -%}"
    "{%- if m['role'] in ['user', 'developer', 'tool'] -%}{%- set ns.last = loop.index0 -%}{%- endif -%}"
    "{%- endfor -%}"
    "{%- set drop = (drop_thinking if drop_thinking is defined else true) and not ns.any_tools -%}"
    /* the last turn may have begun before its last message */
    "{%- for m in messages -%}"
    "{%- if loop.index0 <= ns.last and m['role'] in ['user', 'tool'] and not ns.run -%}"
    "{%- set ns.first = loop.index0 -%}{%- set ns.run = true -%}"
    "{%- elif loop.index0 <= ns.last and m['role'] not in ['user', 'tool'] -%}"
    "{%- set ns.first = loop.index0 -%}{%- set ns.run = false -%}"
    "{%- elif loop.index0 <= ns.last and loop.previtem is defined and loop.previtem['role'] == 'user' and loop.previtem['task'] -%}"
    "{%- set ns.first = loop.index0 -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- set ns.run = false -%}"
    "{%- macro declared(list) -%}"
    "{{- '\\n\\n## Tools\\n\\nYou have access to a set of tools to help answer the user\\'s question. You can invoke "
    "tools by writing a \"<" DSML "tool_calls>\" block like the following:\\n\\n<" DSML
    "tool_calls>\\n<" DSML "invoke name=\"$TOOL_NAME\">\\n<" DSML
    "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" DSML
    "parameter>\\n...\\n</" DSML "invoke>\\n<" DSML "invoke name=\"$TOOL_NAME2\">\\n...\\n</" DSML
    "invoke>\\n</" DSML
    "tool_calls>\\n\\nString parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\\n\\nIf "
    "thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\\n\\nOtherwise, output directly after </think> with "
    "tool calls or final response.\\n\\n### Available Tool Schemas\\n\\n' -}}"
    "{%- for t in list -%}{{- t['function'] | tojson -}}{{- '\\n' -}}{%- endfor -%}"
    "{{- '\\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\\n' -}}"
    "{%- endmacro -%}"
    "{%- macro more(m) -%}"
    "{%- if m['tools'] -%}{{- declared(m['tools']) -}}{%- endif -%}"
    "{%- if m['response_format'] -%}"
    "{{- '\\n\\n## Response Format:\\n\\nYou MUST strictly adhere to the following schema to reply:\\n' + (m['response_format'] | tojson) -}}"
    "{%- endif -%}{%- endmacro -%}"
    /* ---- the prompt ---- */
    "{{- bos_token -}}"
    "{%- if thinking and effort == 'high' -%}"
    "{{- 'Reasoning Effort: Absolute maximum with no shortcuts permitted.\\nYou MUST be very thorough in your thinking "
    "and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against "
    "all potential paths, edge cases, and adversarial scenarios.\\nExplicitly write out your entire deliberation "
    "process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely "
    "no assumption is left unchecked.\\n\\n' -}}"
    "{%- elif thinking and effort == 'max' -%}"
    "{{- 'Reasoning Effort: Beyond maximum \xe2\x80\x94 exhaustive, relentless, and uncompromising.\\nYou MUST reason "
    "with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its "
    "most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any "
    "surface symptom.\\nDo not stop reasoning until you have independently verified the solution from multiple angles and "
    "are certain that no assumption remains unchecked and no error remains undiscovered.\\n\\n' -}}"
    "{%- endif -%}"
    "{%- if tools is defined and tools and messages[0]['role'] != 'system' -%}{{- declared(tools) -}}{%- endif -%}"
    "{%- for m in messages -%}"
    "{%- set role = m['role'] -%}{%- set here = loop.index0 -%}"
    "{%- set after = loop.nextitem if loop.nextitem is defined else none -%}"
    "{%- if role == 'system' -%}"
    "{{- m['content'] or '' -}}"
    "{%- if here == 0 and tools is defined and tools -%}{{- declared(tools) -}}{%- endif -%}{{- more(m) -}}"
    "{%- elif role == 'latest_reminder' -%}"
    "{{- '" SP(
        "latest_reminder") "' + m['content'] -}}"
                           "{%- elif role == 'developer' -%}"
                           "{%- if not (thinking and drop and here < ns.first) -%}"
                           "{{- '" SP(
                               "User") "' + (m['content'] or '') -}}{{- more(m) -}}{%- endif -%}"
                                       "{%- elif role == 'assistant' -%}"
                                       "{%- if m['tool_calls'] -%}{%- set ns.calls = m['tool_calls'] -%}{%- endif -%}"
                                       "{%- if thinking and not (loop.previtem is defined and loop.previtem['task']) and (not drop or here > ns.last) -%}"
                                       "{{- (m['reasoning_content'] or '') + '</think>' -}}{%- endif -%}"
                                       "{{- m['content'] or '' -}}"
                                       "{%- if m['tool_calls'] -%}"
                                       "{{- '\\n\\n<" DSML "tool_calls>\\n' -}}"
                                       "{%- for c in m['tool_calls'] -%}"
                                       "{{- '<" DSML
                                       "invoke name=\"' + c['function']['name'] + '\">\\n' -}}"
                                       "{%- set args = c['function']['arguments'] -%}"
                                       "{%- if args is string -%}{%- set args = args | from_json -%}{%- endif -%}"
                                       "{%- for key, val in args.items() -%}"
                                       "{{- '<" DSML
                                       "parameter name=\"' + key + '\" string=\"' + ('true' if val is string else 'false') + '\">' + "
                                       "(val if val is string else (val | tojson)) + '</" DSML
                                       "parameter>' -}}"
                                       "{%- if not loop.last -%}{{- '\\n' -}}{%- endif -%}"
                                       "{%- endfor -%}"
                                       "{{- '\\n</" DSML "invoke>\\n' -}}"
                                       "{%- endfor -%}"
                                       "{{- '</" DSML "tool_calls>' -}}"
                                       "{%- endif -%}"
                                       "{%- if not m['wo_eos'] -%}{{- '" SP(
                                           "end\xe2\x96\x81of\xe2\x96\x81sentence") "' -}}{%- endif -%}"
                                                                                    "{%- elif role in ['user', 'tool'] -%}"
                                                                                    "{%- if ns.run -%}{{- '\\n\\n' -}}{%- else -%}"
                                                                                    "{{- '" SP(
                                                                                        "User") "' -}}"
                                                                                                "{%- set ns.run = true -%}{%- set ns.sorted = [] -%}{%- set ns.next = 0 -%}"
                                                                                                /* results of this turn in the order of the calls; those of no known call count as of the first */
                                                                                                "{%- set turn = namespace(on=true, list=[]) -%}"
                                                                                                "{%- for o in messages[here:] -%}"
                                                                                                "{%- if o['role'] not in ['user', 'tool'] -%}{%- set turn.on = false -%}{%- endif -%}"
                                                                                                "{%- if turn.on and o['role'] == 'tool' -%}{%- set turn.list = turn.list + [o] -%}{%- endif -%}"
                                                                                                "{%- if o['role'] == 'user' and o['task'] -%}{%- set turn.on = false -%}{%- endif -%}"
                                                                                                "{%- endfor -%}"
                                                                                                "{%- for k in range(ns.calls | length) -%}{%- for o in turn.list -%}"
                                                                                                "{%- set at = namespace(k=0) -%}"
                                                                                                "{%- for c in ns.calls -%}{%- if c['id'] == o['tool_call_id'] -%}{%- set at.k = loop.index0 -%}{%- endif -%}{%- endfor -%}"
                                                                                                "{%- if at.k == k -%}{%- set ns.sorted = ns.sorted + [o] -%}{%- endif -%}"
                                                                                                "{%- endfor -%}{%- endfor -%}"
                                                                                                "{%- if not ns.calls -%}{%- set ns.sorted = turn.list -%}{%- endif -%}"
                                                                                                "{%- endif -%}"
                                                                                                "{%- if role == 'user' -%}{{- m['content'] or '' -}}{%- else -%}"
                                                                                                "{{- '<tool_result>' + (ns.sorted[ns.next]['content'] or '') + '</tool_result>' -}}"
                                                                                                "{%- set ns.next = ns.next + 1 -%}{%- endif -%}"
                                                                                                "{%- endif -%}"
                                                                                                /* ---- what follows a message ---- */
                                                                                                "{%- set ends = after is none or after['role'] not in ['user', 'tool'] or m['task'] or role not in ['user', 'tool'] -%}"
                                                                                                "{%- if ends -%}{%- set ns.run = false -%}{%- endif -%}"
                                                                                                "{%- if ends and (after is none or after['role'] in ['assistant', 'latest_reminder']) -%}"
                                                                                                "{%- set opens = '<think>' if thinking and (not drop or here >= ns.first) else '</think>' -%}"
                                                                                                "{%- if m['task'] and m['task'] != 'action' -%}"
                                                                                                "{{- '<\xef\xbd\x9c' + m['task'] + '\xef\xbd\x9c>' -}}"
                                                                                                "{%- elif m['task'] -%}"
                                                                                                "{{- '" SP("Assistant") "' + ('<think>' if thinking else '</think>') + '" SP(
                                                                                                    "action") "' -}}"
                                                                                                              "{%- elif role in ['user', 'tool', 'developer'] and (after is not none or add_generation_prompt) "
                                                                                                              "and not (role == 'developer' and thinking and drop and here < ns.first) -%}"
                                                                                                              "{{- '" SP(
                                                                                                                  "Assistant") "' + opens -}}"
                                                                                                                               "{%- endif -%}{%- endif -%}"
                                                                                                                               "{%- endfor -%}";

nb_str nb_chat_template_v4(void)
{
    return nb_str_c(text);
}
