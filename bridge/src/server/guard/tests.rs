use super::*;

fn guard(host: &str) -> Guard {
    Guard::new(&Listen {
        host: host.to_owned(),
        port: 0,
        api_key: None,
        allowed_hosts: vec!["bridge.lan".to_owned()],
        allowed_origins: vec!["http://Localhost:3000/".to_owned()],
    })
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn admit(guard: &Guard, fields: &[(&'static str, &str)]) -> Result<Option<HeaderValue>, Refusal> {
    guard.admit(
        Version::HTTP_11,
        &Uri::from_static("/health"),
        &headers(fields),
    )
}

#[test]
fn loopback_and_configured_names_are_ours_with_any_port() {
    for host in [
        "localhost",
        "LOCALHOST:10901",
        "localhost.:1",
        "app.localhost",
        "127.0.0.1:9",
        "127.9.9.9",
        "[::1]:10901",
        "[::ffff:127.0.0.1]",
        "10.1.2.3:10901",
        "Bridge.LAN:80",
    ] {
        assert!(
            admit(&guard("10.1.2.3"), &[("host", host)]).is_ok(),
            "{host}"
        );
    }
}

#[test]
fn a_rebound_name_is_refused() {
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.example:10901",
        "10.1.2.4",
        "notlocalhost",
    ] {
        assert_eq!(
            admit(&guard("127.0.0.1"), &[("host", host)]),
            Err(Refusal::Host(host.to_owned()))
        );
    }
}

#[test]
fn listening_everywhere_takes_addresses_but_no_foreign_names() {
    for any in ["0.0.0.0", "::", "[::]"] {
        let guard = guard(any);
        assert!(admit(&guard, &[("host", "192.168.1.5:10901")]).is_ok());
        assert!(admit(&guard, &[("host", "[fd00::5]:10901")]).is_ok());
        assert!(admit(&guard, &[("host", "evil.example")]).is_err());
    }
}

#[test]
fn host_must_be_there_once_and_plain() {
    let guard = guard("127.0.0.1");
    assert_eq!(admit(&guard, &[]), Err(Refusal::NoHost));
    for host in ["", "a b", "user@localhost"] {
        assert_eq!(
            admit(&guard, &[("host", host)]),
            Err(Refusal::BadHost),
            "{host:?}"
        );
    }
    assert_eq!(
        admit(&guard, &[("host", "localhost"), ("host", "localhost")]),
        Err(Refusal::BadHost)
    );
    let old = guard.admit(Version::HTTP_10, &Uri::from_static("/"), &HeaderMap::new());
    assert!(old.is_ok());
}

#[test]
fn the_name_in_an_absolute_request_line_counts_too() {
    let refused = guard("127.0.0.1").admit(
        Version::HTTP_11,
        &Uri::from_static("http://evil.example/health"),
        &headers(&[("host", "localhost")]),
    );
    assert_eq!(refused, Err(Refusal::Host("evil.example".to_owned())));
}

#[test]
fn only_allowed_origins_pass() {
    let guard = guard("127.0.0.1");
    let with = |origin: &str| admit(&guard, &[("host", "localhost"), ("origin", origin)]);
    assert_eq!(
        with("http://localhost:3000").unwrap().unwrap(),
        "http://localhost:3000"
    );
    for origin in [
        "null",
        "",
        "http://localhost",
        "http://localhost:3001",
        "https://localhost:3000",
        "http://localhost:3000.evil.example",
    ] {
        assert_eq!(with(origin), Err(Refusal::Origin(origin.to_owned())));
    }
}

#[test]
fn null_is_refused_even_when_someone_allowed_it() {
    let guard = Guard {
        origins: vec!["null".to_owned()],
        ..guard("127.0.0.1")
    };
    let refused = admit(&guard, &[("host", "localhost"), ("origin", "null")]);
    assert_eq!(refused, Err(Refusal::Origin("null".to_owned())));
}

#[test]
fn a_page_that_hides_its_origin_is_seen_by_its_site() {
    let guard = guard("127.0.0.1");
    let with = |site| admit(&guard, &[("host", "localhost"), ("sec-fetch-site", site)]);
    assert!(with("none").is_ok());
    assert!(with("same-origin").is_ok());
    assert_eq!(with("cross-site"), Err(Refusal::CrossSite));
    assert_eq!(with("same-site"), Err(Refusal::CrossSite));
}

#[test]
fn the_key_is_taken_from_either_field() {
    let guard = Guard {
        key: Some(Secret::new("k-test")),
        ..guard("127.0.0.1")
    };
    let check = |fields: &[(&'static str, &str)]| guard.check_key(&headers(fields));
    assert_eq!(check(&[("authorization", "Bearer k-test")]), Ok(()));
    assert_eq!(check(&[("authorization", "bearer  k-test")]), Ok(()));
    assert_eq!(check(&[("x-api-key", "k-test")]), Ok(()));
    assert_eq!(check(&[]), Err(Refusal::NoKey));
    assert_eq!(
        check(&[("authorization", "Basic k-test")]),
        Err(Refusal::NoKey)
    );
    for wrong in ["Bearer k-tes", "Bearer k-test2", "Bearer K-test", "Bearer "] {
        assert_eq!(check(&[("authorization", wrong)]), Err(Refusal::WrongKey));
    }
}
