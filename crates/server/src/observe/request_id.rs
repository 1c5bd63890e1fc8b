//! Names of requests: the client's if it is fit to be written into a log, else one of ours.

use axum::http::HeaderValue;
use ropeway_generation::unique;

/// Longest name taken from a client: a UUID has 36 characters, trace ids of proxies up to about 100.
const LONGEST: usize = 128;

/// The request's name.
pub fn of(given: Option<&HeaderValue>) -> HeaderValue {
    let fit = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
        !bytes.is_empty() && bytes.len() <= LONGEST && bytes.iter().all(plain)
    };
    let ours = || HeaderValue::from_str(&unique("req_")).unwrap_or(HeaderValue::from_static("req"));
    given.filter(fit).cloned().unwrap_or_else(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_name_is_kept_if_it_is_fit_for_a_log() {
        let kept = |text: &str| of(Some(&HeaderValue::from_str(text).unwrap())) == text;
        assert!(kept("0d9f-4c.a_b:c/d+e=@"));
        for unfit in ["", "a b", "a\tb", "<script>", "\"", &"x".repeat(LONGEST + 1)] {
            assert!(!kept(unfit), "{unfit:?}");
        }
        assert!(of(None).as_bytes().starts_with(b"req_"));
    }
}
