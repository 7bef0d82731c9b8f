use serde_json::json;

use super::*;

fn line(description: &str, parameters: Value) -> String {
    signature(&Tool {
        name: "f".to_owned(),
        description: description.to_owned(),
        parameters,
    })
}

#[test]
fn a_tool_is_a_signature_and_the_first_sentence() {
    let parameters = json!({"type": "object", "properties": {"cmd": {"type": "string"}, "workdir": {"type": "string"}}, "required": ["cmd"]});
    assert_eq!(
        line(
            "Runs a command in a PTY. Returns output.\nMore.",
            parameters
        ),
        "f(cmd: string, workdir?: string) - Runs a command in a PTY."
    );
    assert_eq!(line("", json!({})), "f()");
}

#[test]
fn types_are_written_as_people_write_them() {
    let parameters = json!({"properties": {
        "a": {"type": "array", "items": {"type": "string"}},
        "b": {"enum": ["x", "y"]},
        "c": {"type": ["string", "null"]},
        "d": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "e": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"]}},
        "g": {"type": "object"}, "h": true, "i": {"const": 3},
        "j": {"type": "array", "items": {"enum": [1, 2]}}, "k": {"type": "array"}, "l": {"anyOf": []},
    }});
    assert_eq!(
        line("", parameters),
        "f(a?: string[], b?: \"x\" | \"y\", c?: string | null, d?: integer | null, \
         e?: {k: boolean}[], g?: object, h?: any, i?: 3, j?: (1 | 2)[], k?: any[], l?: any)"
    );
}

#[test]
fn long_descriptions_end_at_a_word() {
    let line = line(&"wörd ".repeat(100), json!({}));
    assert!(line.len() < 180 && line.ends_with("wörd"), "{line}");
}

#[test]
fn schemas_nested_without_end_stay_short() {
    let mut schema = json!({"type": "string"});
    for _ in 0..60 {
        schema = json!({"type": "object", "properties": {"x": schema, "y": {"anyOf": [schema, {"type": "array", "items": {"type": "null"}}]}}});
        if schema.to_string().len() > 100_000 {
            break;
        }
    }
    assert!(line("", schema).len() < 400);
}
