//! Where a redirect leads, and whether it may be followed.

/// The next address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// Another address of the same origin.
    Within(String),
    /// An address of another origin.
    Elsewhere(String),
    /// An address that must not be followed: from https to anything less, or no address at all.
    Unsafe,
}

/// What `location` means in an answer from `url`.
pub(crate) fn next(url: &str, location: &str) -> Hop {
    let whole = if location.starts_with("//") {
        let scheme = url.find("://").map_or("", |end| &url[..=end]);
        format!("{scheme}{location}")
    } else if location.starts_with('/') {
        format!("{}{location}", origin(url))
    } else {
        location.to_owned()
    };
    let is_web = whole.starts_with("https://") || whole.starts_with("http://");
    let loses_secrecy = url.starts_with("https://") && !whole.starts_with("https://");
    match origin(&whole) == origin(url) {
        _ if !is_web || loses_secrecy => Hop::Unsafe,
        true => Hop::Within(whole),
        false => Hop::Elsewhere(whole),
    }
}

/// `https://host:port` of an address.
pub(crate) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |path| host + path);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_ends_before_the_path() {
        assert_eq!(origin("https://hub.example:8443/a/b"), "https://hub.example:8443");
        assert_eq!(origin("http://hub.example"), "http://hub.example");
        assert_eq!(origin("http://hub.example?x=/y"), "http://hub.example");
    }

    #[test]
    fn another_port_is_another_origin_and_https_never_becomes_http() {
        let url = "https://hub.example/a";
        assert_eq!(next(url, "/b"), Hop::Within("https://hub.example/b".into()));
        assert_eq!(
            next(url, "https://hub.example:8443/b"),
            Hop::Elsewhere("https://hub.example:8443/b".into())
        );
        assert_eq!(next(url, "//cdn.example/b"), Hop::Elsewhere("https://cdn.example/b".into()));
        for bad in ["http://hub.example/a", "file:///etc/passwd", "", "b", "ftp://hub.example/a"] {
            assert_eq!(next(url, bad), Hop::Unsafe, "{bad}");
        }
        assert_eq!(next("http://a/x", "http://a.evil/x"), Hop::Elsewhere("http://a.evil/x".into()));
    }
}
