//! What the tests of prompts share: templates in the shape of the published ones, in words of our own.

use serde_json::{Value, json};

use super::{
    Conversation, RenderOptions, Rendered, Template, TemplateOptions, Tools, ToolsMode, date::Date,
};
use crate::tokenizer::{Tokenizer, testing};

pub(crate) const DATE: Date = Date {
    year: 2024,
    month: 7,
    day: 5,
};

/// SmolLM2: ChatML, a system turn of its own, no tools.
pub(crate) const SMOLLM2: &str = "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a test model<|im_end|>\n' }}{% endif %}\
{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Llama 3.1: date, tools into the first user turn unless told otherwise, one call a turn, results in `ipython` turns as JSON.
pub(crate) const LLAMA31: &str = r#"{{- bos_token }}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set sys = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set sys = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Knowledge: test\nToday: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions:\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- sys }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("tools need a user message") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
    {%- endfor %}
    {{- first + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call a turn") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and call.name in builtin_tools %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
            {{- "<|python_tag|>" + call.name + ".call(" }}
            {%- for name, value in call.arguments | items %}
                {{- name + '="' + value + '"' }}
            {%- endfor %}
            {{- ")<|eom_id|>" }}
        {%- else %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
            {{- '{"name": "' + call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- call.arguments | tojson }}
            {{- "}" }}
            {{- "<|eot_id|>" }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

/// Llama 3.2: as 3.1, but it asks the clock for the date when it is given none.
pub(crate) fn llama32() -> String {
    LLAMA31
        .replace(
            r#"{%- set date_string = "26 Jul 2024" %}"#,
            r#"{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}"#,
        )
        .replace("date_string + ", "strftime_now('%d %b %Y') + ")
}

/// Hermes: tools as JSON in the system turn, any number of calls in tags, neighbouring results in one turn.
pub(crate) const HERMES: &str = r#"{%- macro kind(p) %}{%- if p.type is string %}{{- p.type }}{%- elif p.type is iterable %}{{- p.type | join('|') }}{%- endif %}{%- endmacro %}
{{- bos_token }}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}
{%- if tools %}
    {{- '\nYou may call functions.\n<tools>' }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
        {{- '\n{"type": "function", "function": {"name": "' + tool.name + '", "description": ' + (tool.description | tojson) + ', "parameters": ' }}
        {{- tool.parameters | tojson }}
        {{- '}}' }}
        {%- for name, p in tool.parameters.properties | items %}{{- '\n  ' + name + ': ' + kind(p) }}{%- endfor %}
    {%- endfor %}
    {{- '\n</tools>' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in rest %}
    {%- if message.role == "user" or message.role == "system" or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n' }}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '{"name": "' + tool_call.name + '", "arguments": ' + (tool_call.arguments | tojson) + '}' }}
            {{- '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>tool\n' }}
        {%- endif %}
        {{- '<tool_response>\n' + message.content }}
        {%- if not loop.last %}{{- '\n</tool_response>\n' }}{%- else %}{{- '\n</tool_response>' }}{%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>' }}
        {%- elif loop.last %}
            {{- '<|im_end|>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"#;

/// A strict template: no system turns but the first, and user and assistant in turns.
pub(crate) const STRICT: &str = r#"{%- if messages[0].role == 'system' %}{%- set sys = messages[0].content + '\n\n' %}{%- set messages = messages[1:] %}{%- else %}{%- set sys = '' %}{%- endif %}
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('user and assistant must alternate') }}{%- endif %}
    {{- '<|im_start|>' + m.role + '\n' + (sys if loop.first else '') + m.content + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"#;

/// A reasoning template: thoughts of the turns since the last question are kept, and the assistant starts with one.
pub(crate) const THINKER: &str = r#"{%- set last = namespace(at=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set last.at = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > last.at %}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}
    {{- m.content }}
    {%- for c in m.tool_calls or [] %}{{- '<tool_call>\n' + {"name": c.function.name, "arguments": c.function.arguments} | tojson + '\n</tool_call>' }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}{%- endif %}
{#- tools: 'tool' turns carry results -#}"#;

/// All of them by name, with the vocabulary of their family.
pub(crate) fn shapes() -> Vec<(&'static str, String, Tokenizer)> {
    let llama = || testing::with_controls(&LLAMA_CONTROLS);
    let chatml = || testing::with_controls(&CHATML_CONTROLS);
    vec![
        ("smollm2", SMOLLM2.to_owned(), chatml()),
        ("llama31", LLAMA31.to_owned(), llama()),
        ("llama32", llama32(), llama()),
        ("hermes", HERMES.to_owned(), chatml()),
        ("strict", STRICT.to_owned(), chatml()),
        ("thinker", THINKER.to_owned(), chatml()),
    ]
}

pub(crate) const LLAMA_CONTROLS: [&str; 7] = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
];
pub(crate) const CHATML_CONTROLS: [&str; 5] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    "<jupyter_start>",
];

pub(crate) fn template(name: &str, tools: ToolsMode) -> (Template, Tokenizer) {
    let (_, source, tokenizer) = shapes().into_iter().find(|shape| shape.0 == name).unwrap();
    let options = TemplateOptions {
        tools,
        date: Some(DATE),
        ..TemplateOptions::default()
    };
    (
        Template::new(Some(&source), &tokenizer, options).unwrap(),
        tokenizer,
    )
}

pub(crate) fn request(value: Value) -> protocol::Object {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

pub(crate) fn render(template: &Template, request: &Value) -> Rendered {
    let request = self::request(request.clone());
    template
        .render(
            &Conversation::from_request(&request).unwrap(),
            &Tools::from_request(&request).unwrap(),
            &RenderOptions::default(),
        )
        .unwrap()
}

/// The prompt in letters: control tokens by their names in `⟨⟩`, so that a forged one shows.
pub(crate) fn spell(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    let mut bytes = Vec::new();
    for token in tokens {
        match tokenizer.control_text(*token) {
            Some(text) => {
                let name = text.trim_matches(|character| matches!(character, '<' | '>' | '|'));
                bytes.extend_from_slice(format!("⟨{name}⟩").as_bytes());
            }
            None => bytes.extend_from_slice(tokenizer.token_bytes(*token)),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The prompt that a shape makes of a request.
pub(crate) fn prompt(name: &str, tools: ToolsMode, request: &Value) -> String {
    let (template, tokenizer) = template(name, tools);
    spell(&tokenizer, &render(&template, request).tokens)
}

pub(crate) fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

pub(crate) fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "Looks. Carefully.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"],
    }})
}
