use super::super::shape::Holds;
use super::*;

const FIELDS: &[Field] = &[
    Field::new("messages", Holds::Conversation),
    Field::new("prompt", Holds::Prompts(3)),
    Field::new("tokens", Holds::Tokens),
    Field::new("text", Holds::Prompt),
];
const CONTEXTS: Contexts = Contexts { text: 20, tokens: 5 };

/// Reads a body in pieces of every size; all must agree.
fn scan(body: &str) -> Result<usize, String> {
    let whole = by_pieces(body, body.len().max(1));
    for size in 1..8 {
        assert_eq!(by_pieces(body, size), whole, "{body} in pieces of {size}");
    }
    whole
}

fn by_pieces(body: &str, size: usize) -> Result<usize, String> {
    let mut scanner = Scanner::new(FIELDS, CONTEXTS, body.len());
    let all = body.as_bytes().chunks(size).try_for_each(|piece| scanner.feed(piece));
    all.and_then(|()| scanner.finish(body.len())).map(|()| scanner.values()).map_err(|error| error.message)
}

#[test]
fn names_and_values_are_counted_and_ids_are_not() {
    assert_eq!(scan("{}"), Ok(1));
    assert_eq!(scan(r#"{"a": 1, "b": [true, null, "x,y"]}"#), Ok(8));
    assert_eq!(scan(r#"{"prompt": [1, 2, 3], "a": [1, 2]}"#), Ok(6));
    assert_eq!(scan(r#"{"prompt": [[1,2,3],[4],[5]]}"#), Ok(2));
    assert_eq!(scan(r#"{"a": "\"[1,2\\", "b\"": 1}"#), Ok(5));
}

#[test]
fn more_ids_than_the_context_holds_are_refused() {
    assert!(scan(r#"{"prompt": [1,2,3,4,5]}"#).is_ok());
    assert!(scan(r#"{"prompt": [1,2,3,4,5,6]}"#).unwrap_err().contains("at most 5 token ids"));
    assert!(scan(r#"{"prompt": [[1,2,3,4,5],[1,2,3,4,5]]}"#).is_ok());
    assert!(scan(r#"{"prompt": [[1],[1,2,3,4,5,6]]}"#).is_err());
    assert!(scan(r#"{"tokens": [1,2,3,4,5,6]}"#).is_err());
    assert!(scan(r#"{"prompt": [[],[],[]]}"#).is_ok());
    assert!(scan(r#"{"prompt": [[],[],[],[]]}"#).unwrap_err().contains("more than the 3 texts"));
    assert!(scan(r#"{"prompt": ["","","",""]}"#).is_err());
}

#[test]
fn a_text_that_never_fits_is_refused_however_it_is_written() {
    let text = |text: &str| scan(&format!(r#"{{"text": "{text}"}}"#));
    assert!(text(&"a".repeat(20)).is_ok());
    assert!(text(&"a".repeat(21)).unwrap_err().contains("maximum context length is 5 tokens"));
    assert!(text(&r"\u0061".repeat(20)).is_ok());
    assert!(text(&r"\n".repeat(21)).is_err());
    assert!(scan(&format!(r#"{{"prompt": ["{0}", "{0}"]}}"#, "a".repeat(20))).is_ok());
    let long = "a".repeat(4 << 15);
    let messages = |text: &str| scan(&format!(r#"{{"messages": [{{"content": "{text}"}}]}}"#));
    assert!(messages(&long[..1 << 16]).is_ok());
    assert!(messages(&long).unwrap_err().contains("never fit"));
    assert!(scan(&format!(r#"{{"other": "{long}"}}"#)).is_ok());
    assert!(scan(&format!(r#"{{"other": ["{long}", "{long}{long}1"]}}"#)).unwrap_err().contains("no part"));
    assert!(scan(&format!(r#"{{"{long}{long}1": 1}}"#)).is_err());
    // Texts before the field, or a field that is named elsewhere, mean nothing.
    assert!(scan(&format!(r#"{{"other": "{long}", "text": "a", "x": {{"text": "{long}"}}}}"#)).is_ok());
}

#[test]
fn wide_and_deep_bodies_are_refused() {
    let wide = |item: &str| scan(&format!(r#"{{"other": [{}]}}"#, vec![item; 40_000].join(",")));
    for item in ["0", "[]", "{}", "\"\"", "null"] {
        assert!(wide(item).unwrap_err().contains("names and values"), "{item}");
    }
    let deep = |levels: usize| format!("{}0{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert!(scan(&deep(128)).is_ok());
    assert!(scan(&deep(129)).unwrap_err().contains("nested deeper"));
    assert!(scan(&"[".repeat(200)).is_err());
}

#[test]
fn a_long_body_may_have_more_values_than_a_short_one_up_to_a_bound() {
    assert_eq!(most_values(0), FREE_VALUES);
    assert_eq!(most_values(1 << 20), FREE_VALUES + (1 << 15));
    assert_eq!(most_values(1 << 30), MOST_VALUES);
}

#[test]
fn what_is_no_json_is_counted_without_a_panic() {
    for body in ["", "}}}}", "]", "\"", "\\", ":,:,", "{\"\\", "\u{FEFF}{", "{,}", "[}{]"] {
        assert!(scan(body).is_ok(), "{body}");
    }
}
