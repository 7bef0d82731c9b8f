//! Python literals.

use pretty_assertions::assert_eq;

use super::super::python_value::to_json;

#[test]
fn literals_become_compact_json() {
    for (python, json) in [
        ("'x'", r#""x""#),
        (r#""it's""#, r#""it's""#),
        (r#"'say "hi"'"#, r#""say \"hi\"""#),
        (r"'a\'b'", r#""a'b""#),
        (r"'\n\t\\'", r#""\n\t\\""#),
        (r"'\x41\u0142\U0001f600\101'", "\"Ał😀A\""),
        (r"'\ud83d\ude00'", "\"😀\""),
        (r"'\ud83d'", "\"\u{fffd}\""),
        (r"r'a\n'", r#""a\\n""#),
        (r"'\d'", r#""\\d""#),
        ("'''a\n'b''c'''", r#""a\n'b''c""#),
        ("\"\"\"\"\"\"", r#""""#),
        ("''", r#""""#),
        ("'a' \"b\"\n'c'", r#""abc""#),
        ("True", "true"),
        ("False", "false"),
        ("None", "null"),
        ("true", "true"),
        ("1_000", "1000"),
        ("-7", "-7"),
        ("+7", "7"),
        (".5", "0.5"),
        ("1.", "1.0"),
        ("1.e3", "1.0e3"),
        ("1e3", "1e3"),
        ("0x1F", "31"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("[1, [2], ()]", "[1,[2],[]]"),
        ("(1, 2,)", "[1,2]"),
        (
            "{'a': 1, \"b\": {'c': [True]}}",
            r#"{"a":1,"b":{"c":[true]}}"#,
        ),
        ("{1: 2}", r#"{"1":2}"#),
    ] {
        assert_eq!(to_json(python).as_deref(), Some(json), "{python}");
    }
}

#[test]
fn what_is_no_literal_is_refused() {
    for python in [
        "", "ls", "f(x)", "'a", "[1", "[1 2]", "{'a' 1}", "1 2", "007", "--1", "Trueish", "nan",
        r"'\xZZ'", "0x", "[,]",
    ] {
        assert_eq!(to_json(python), None, "{python}");
    }
    assert_eq!(to_json(&"[".repeat(100_000)), None);
}
