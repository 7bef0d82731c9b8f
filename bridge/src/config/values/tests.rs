use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

#[test]
fn durations_have_units_seconds_or_off_and_nothing_else() {
    let ms = |milliseconds| Ok(Some(Duration::from_millis(milliseconds)));
    for (value, expected) in [
        (json!("30m"), ms(1_800_000)),
        (json!(1800), ms(1_800_000)),
        (json!("250ms"), ms(250)),
        (json!("2h"), ms(7_200_000)),
        (json!("off"), Ok(None)),
        (json!(0), Ok(None)),
        (json!("0s"), Ok(None)),
        (json!("abc"), Err("not a duration")),
        (json!("30"), Err("not a duration")),
        (json!("s"), Err("not a duration")),
        (json!("1.5s"), Err("not a duration")),
        (json!("30 m"), Err("not a duration")),
        (json!("99999999999999999999s"), Err("not a duration")),
        (json!("18446744073709551615h"), Err("not a duration")),
        (json!("8761h"), Err("too long")),
        (json!(-5), Err("not whole seconds")),
        (json!(1.5), Err("not whole seconds")),
        (json!(true), Err("not a duration")),
    ] {
        assert_eq!(
            SpanOrOff::try_from(value.clone()).map(|span| span.0),
            expected,
            "{value}"
        );
    }
    assert_eq!(Span::try_from(json!("off")), Err("disabled"));
}

#[test]
fn a_duration_is_written_in_its_largest_whole_unit() {
    for text in ["250ms", "15s", "90s", "30m", "2h", "off"] {
        let span = SpanOrOff::try_from(json!(text)).unwrap();
        assert_eq!(serde_json::to_value(span).unwrap(), json!(text));
    }
}

#[test]
fn base_urls_are_normalised_or_refused() {
    for (text, expected) in [
        ("http://127.0.0.1:8080/v1", Some("http://127.0.0.1:8080/v1")),
        (
            "http://127.0.0.1:8080/v1/",
            Some("http://127.0.0.1:8080/v1"),
        ),
        ("HTTP://LocalHost:80/v1", Some("http://localhost/v1")),
        ("https://models.example", Some("https://models.example")),
        (" http://[::1]:8080 ", Some("http://[::1]:8080")),
        ("ftp://h/", None),
        ("http:h", None),
        ("h:8080", None),
        ("http://", None),
        ("http://u@h/", None),
        ("http://@h/", None),
        ("http://u:p@h/", None),
        ("http://h/?", None),
        ("http://h/?a=b", None),
        ("http://h/#", None),
        ("http://h/a b", None),
        ("http://h:99999/", None),
        ("", None),
    ] {
        let url = BaseUrl::try_from(text.to_owned()).ok();
        let expected = expected.map(|url| json!(url));
        assert_eq!(
            url.map(|url| serde_json::to_value(url).unwrap()),
            expected,
            "{text}"
        );
    }
}

#[test]
fn hosts_are_normalised_or_refused() {
    for (text, expected) in [
        (" 127.0.0.1 ", Some("127.0.0.1")),
        ("LocalHost", Some("localhost")),
        ("[::1]", Some("::1")),
        ("::", Some("::")),
        // What the system's resolver would make of it.
        ("0", Some("0.0.0.0")),
        ("box.example", Some("box.example")),
        ("", None),
        ("box:80", None),
        ("a b", None),
        ("http://box", None),
    ] {
        assert_eq!(
            Host::try_from(text.to_owned())
                .ok()
                .map(|host| host.0)
                .as_deref(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn origins_are_scheme_host_and_port() {
    for (text, expected) in [
        ("http://localhost:3000", Some("http://localhost:3000")),
        ("HTTPS://Page.example:443", Some("https://page.example")),
        ("app://editor", Some("app://editor")),
        ("http://localhost:3000/", None),
        ("localhost:3000", None),
        ("*", None),
        ("http://*", None),
        ("null", None),
    ] {
        assert_eq!(
            Origin::try_from(text.to_owned())
                .ok()
                .map(|origin| origin.0)
                .as_deref(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_key_must_fit_into_a_header_and_never_shows() {
    let key = KeyText::try_from("k-test".to_owned()).unwrap();
    assert_eq!(
        (serde_json::to_value(&key).unwrap(), format!("{key:?}")),
        (json!("********"), "KeyText(Secret(…))".to_owned())
    );
    for text in ["", "a b", "a\nb", "schlüssel"] {
        assert_eq!(
            KeyText::try_from(text.to_owned()),
            Err("not a bearer key"),
            "{text}"
        );
    }
}
