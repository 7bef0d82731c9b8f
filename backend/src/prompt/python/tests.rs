use serde_json::{Value as Json, json};

use super::*;

fn written(json: &Json, style: &Style) -> String {
    dumps(&value(json, &str::to_owned), style, Paper::new(None)).unwrap()
}

/// Expectations made with CPython 3.11: `json.dumps(json.loads(text), ensure_ascii=False)`.
#[test]
fn json_is_written_as_python_writes_it() {
    for (text, expected) in [
        (
            r#"{"b":1,"a":[true,null,"x"],"c":{}}"#,
            r#"{"b": 1, "a": [true, null, "x"], "c": {}}"#,
        ),
        (
            r#"[1.0,1e5,1e16,1e-4,1e-5,0.1,-0.0,2.5e-10,123456789012345680.0]"#,
            "[1.0, 100000.0, 1e+16, 0.0001, 1e-05, 0.1, -0.0, 2.5e-10, 1.2345678901234568e+17]",
        ),
        (
            r#"[123456789012345678901234567890123456789012345678901234567890]"#,
            "[123456789012345678901234567890123456789012345678901234567890]",
        ),
        (
            r#"["<&>'é😀\u007f\u0001\b\f\n\r\t\"\\/"]"#,
            "[\"<&>'é😀\u{7f}\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\"]",
        ),
        (
            r#"[18446744073709551615,-9223372036854775808]"#,
            "[18446744073709551615, -9223372036854775808]",
        ),
        ("[]", "[]"),
    ] {
        assert_eq!(
            written(&serde_json::from_str(text).unwrap(), &Style::default()),
            expected
        );
    }
}

#[test]
fn indent_separators_and_order_are_pythons_too() {
    let json = json!({"b": [1, {"x": []}], "a": {}});
    let indented = Style {
        indent: Some(4),
        ..Style::default()
    };
    assert_eq!(
        written(&json, &indented),
        "{\n    \"b\": [\n        1,\n        {\n            \"x\": []\n        }\n    ],\n    \"a\": {}\n}"
    );
    let tight = Style {
        item_separator: ",".to_owned(),
        key_separator: ":".to_owned(),
        sort_keys: true,
        ..Style::default()
    };
    assert_eq!(written(&json, &tight), r#"{"a":{},"b":[1,{"x":[]}]}"#);
    let ascii = Style {
        ascii: true,
        ..Style::default()
    };
    assert_eq!(written(&json!("é😀"), &ascii), r#""\u00e9\ud83d\ude00""#);
}

#[test]
fn printed_values_are_pythons_str() {
    let shown = |json: Json| print(&value(&json, &str::to_owned), Paper::new(None)).unwrap();
    assert_eq!(
        shown(json!({"a": [true, null, 1.0, "it's"], "b": "x\n"})),
        r#"{'a': [True, None, 1.0, "it's"], 'b': 'x\n'}"#
    );
    assert_eq!(shown(json!("as it is")), "as it is");
    assert_eq!(print(&Value::UNDEFINED, Paper::new(None)).unwrap(), "");
}

#[test]
fn a_value_that_is_endless_on_paper_is_an_error() {
    let mut list = Value::from(vec![Value::from(1)]);
    for _ in 0..100 {
        list = Value::from(vec![list.clone(), list]);
    }
    assert!(dumps(&list, &Style::default(), Paper::new(Some(1_000_000))).is_err());
    assert!(print(&list, Paper::new(Some(1_000_000))).is_err());
    let mut deep = Value::from(1);
    for _ in 0..10_000 {
        deep = Value::from(vec![deep]);
    }
    assert!(dumps(&deep, &Style::default(), Paper::new(None)).is_err());
    std::mem::forget(deep); // Dropping it would recurse as deep as it is; no template can build one like this.
}
