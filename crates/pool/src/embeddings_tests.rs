use proptest::prelude::*;

use super::*;

fn texts(count: usize) -> EmbeddingInput {
    EmbeddingInput::Texts((0..count).map(|index| index.to_string()).collect())
}

#[test]
fn texts_are_asked_for_in_base64_and_cut_where_the_server_can_be_told_to() {
    for kind in Kind::ALL {
        let sent = body(&texts(2), Overlong::Cut, kind, "m").unwrap();
        assert_eq!((&sent["input"], &sent["encoding_format"]), (&json!(["0", "1"]), &json!("base64")));
        assert_eq!(sent.get("truncate_prompt_tokens").is_some(), kind == Kind::Vllm);
        let ids = body(&EmbeddingInput::Tokens(vec![vec![1]]), Overlong::Refuse, kind, "m");
        match kind {
            Kind::Ollama => assert_eq!(ids.unwrap_err().field.as_deref(), Some("input")),
            _ => assert_eq!(ids.unwrap()["input"], json!([[1]])),
        }
    }
}

#[test]
fn numbers_and_base64_are_the_same_vector_wherever_they_stand_in_the_list() {
    let answer = json!({"object": "list", "model": "m", "usage": {"prompt_tokens": 6, "total_tokens": 6}, "data": [
        {"object": "embedding", "index": 1, "embedding": "AACAPwAAAMA="},
        {"object": "embedding", "index": 0, "embedding": [1.0, -2]},
    ]});
    let read = vectors(&answer, 2).unwrap();
    assert_eq!(read, Vectors { vectors: vec![vec![1.0, -2.0]; 2], tokens: 6 });
}

#[test]
fn an_answer_for_other_texts_is_an_error() {
    let row = |index: u64| json!({"index": index, "embedding": [1.0]});
    for (answer, said) in [
        (json!({}), "no list"),
        (json!({"data": [row(0)]}), "2 vectors"),
        (json!({"data": [row(0), row(0)]}), "2 vectors"),
        (json!({"data": [row(0), row(1), row(2)]}), "number 2"),
        (json!({"data": [row(0), {"index": 1, "embedding": "AAA"}]}), "neither"),
        (json!({"data": [row(0), {"index": 1, "embedding": "????"}]}), "neither"),
        (json!({"data": [row(0), {"index": 1}]}), "neither"),
        (json!({"data": [row(0), {"index": 1, "embedding": "AADAfw=="}]}), "not finite"),
    ] {
        let error = vectors(&answer, 2).unwrap_err().to_string();
        assert!(error.contains(said), "{answer}: {error}");
    }
}

#[test]
fn scores_are_put_back_into_the_order_of_the_documents() {
    let documents = ["a".to_owned(), "b".to_owned()];
    let sent = rerank_body("q", &documents, Kind::Vllm, "m").unwrap();
    assert_eq!(sent, json!({"model": "m", "query": "q", "documents": ["a", "b"]}));
    assert!(rerank_body("q", &documents, Kind::Ollama, "m").is_err());
    let expected = |tokens| Ok(Scores { scores: vec![0.25, 0.75], tokens });
    let vllm = json!({"id": "r", "model": "m", "usage": {"prompt_tokens": 9, "total_tokens": 9}, "results": [
        {"index": 1, "document": {"text": "b"}, "relevance_score": 0.75},
        {"index": 0, "document": {"text": "a"}, "relevance_score": 0.25}]});
    assert_eq!(scores(&vllm, 2), expected(9));
    let llama = json!({"object": "list", "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "results": [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]});
    assert_eq!(scores(&llama, 2), expected(9));
    let sglang =
        json!([{"score": 0.75, "document": "b", "index": 1}, {"score": 0.25, "document": "a", "index": 0}]);
    assert_eq!(scores(&sglang, 2), expected(0));
    assert!(scores(&sglang, 3).unwrap_err().to_string().contains("3 scores"));
    assert!(scores(&json!([{"index": 0}]), 1).is_err());
}

proptest! {
    #[test]
    fn base64_is_read_as_it_is_written(bytes in prop::collection::vec(any::<u8>(), 0..40), is_padded: bool) {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in bytes.chunks(3) {
            let mut padded = [0; 3];
            padded[..three.len()].copy_from_slice(three);
            let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
            let sextets = (0..=three.len()).map(|place| ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]);
            text.extend(sextets.map(char::from));
            text.extend(std::iter::repeat_n('=', if is_padded { 3 - three.len() } else { 0 }));
        }
        prop_assert_eq!(base64(&text), Some(bytes));
    }
}
