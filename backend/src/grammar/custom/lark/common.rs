//! What `%import common.X` brings.

/// Lark's library of terminals, as documented in its `grammars/common.lark`.
pub(super) fn common(name: &str) -> Option<&'static str> {
    Some(match name {
        "DIGIT" => "[0-9]",
        "HEXDIGIT" => "[a-fA-F0-9]",
        "INT" => "[0-9]+",
        "SIGNED_INT" => "[+-]?[0-9]+",
        "DECIMAL" => r"[0-9]+\.[0-9]*|\.[0-9]+",
        "FLOAT" => r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "SIGNED_FLOAT" => {
            r"[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        }
        "NUMBER" => r"[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "SIGNED_NUMBER" => {
            r"[+-]?(?:[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        }
        "ESCAPED_STRING" => r#""(?:[^"\\\n]|\\.)*""#,
        "LCASE_LETTER" => "[a-z]",
        "UCASE_LETTER" => "[A-Z]",
        "LETTER" => "[A-Za-z]",
        "WORD" => "[A-Za-z]+",
        "CNAME" => "[_A-Za-z][_A-Za-z0-9]*",
        "WS_INLINE" => r"[ \t]+",
        "WS" => r"[ \t\f\r\n]+",
        "CR" => r"\r",
        "LF" => r"\n",
        "NEWLINE" => r"(?:\r?\n)+",
        "SH_COMMENT" => r"#[^\n]*",
        "CPP_COMMENT" => r"//[^\n]*",
        "C_COMMENT" => r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
        "SQL_COMMENT" => r"--[^\n]*",
        _ => return None,
    })
}
