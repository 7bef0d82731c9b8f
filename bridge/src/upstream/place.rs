//! Where a server's endpoints lie, given the base URL that a user wrote.

use url::Url;

/// `<base>/<name>`.
pub(crate) fn below(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push(name);
    }
    url
}

/// What belongs to the server and not to its API lies beside `/v1`: `/props` of llama-server.
pub(crate) fn beside_v1(base: &Url, name: &str) -> Url {
    let mut root = base.clone();
    let ends_in_v1 = base.path().trim_end_matches('/').ends_with("/v1");
    if let Ok(mut path) = root.path_segments_mut()
        && ends_in_v1
    {
        path.pop_if_empty().pop();
    }
    below(&root, name)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn props_lie_beside_v1_and_models_below_the_base() {
        for (base, props, models) in [
            ("http://h:1/v1", "http://h:1/props", "http://h:1/v1/models"),
            ("http://h:1/v1/", "http://h:1/props", "http://h:1/v1/models"),
            (
                "http://h/llama/v1",
                "http://h/llama/props",
                "http://h/llama/v1/models",
            ),
            ("http://h", "http://h/props", "http://h/models"),
            ("http://h/api/", "http://h/api/props", "http://h/api/models"),
        ] {
            let base = base.parse().unwrap();
            assert_eq!(beside_v1(&base, "props").as_str(), props);
            assert_eq!(below(&base, "models").as_str(), models);
        }
    }
}
