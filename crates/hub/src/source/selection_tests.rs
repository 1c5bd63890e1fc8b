//! Which files are chosen from listings as they are found.

use super::*;

fn choose_from(listed: &[&str], wanted: Option<&str>) -> Result<Vec<String>, SourceError> {
    let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
    let wanted = wanted.map(|name| RelativePath::parse(name).unwrap());
    let wish = wanted.as_ref().map_or(Wish::Any, Wish::Named);
    choose(&listed, wish).map(|choice| choice.files.into_iter().map(String::from).collect())
}

#[test]
fn a_safetensors_repository_gives_weights_and_companions_only() {
    let listed = [
        ".gitattributes",
        "README.md",
        "config.json",
        "chat_template.jinja",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "consolidated.safetensors",
        "pytorch_model.bin",
        "tokenizer.json",
        "onnx/model.onnx",
        "original/model.safetensors",
        "1_Pooling/config.json",
    ];
    let chosen = choose_from(&listed, None).unwrap();
    assert_eq!(
        chosen,
        [
            "config.json",
            "chat_template.jinja",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "1_Pooling/config.json",
        ]
    );
}

#[test]
fn a_repository_with_one_gguf_file_needs_no_file_name() {
    assert_eq!(choose_from(&["README.md", "m.gguf"], None).unwrap(), ["m.gguf"]);
}

#[test]
fn of_several_quantizations_the_usual_one_is_chosen_and_the_others_are_told() {
    let listed = ["m.Q8_0.gguf", "m.Q4_K_M.gguf", "m.IQ2_XS.gguf", "mmproj-m-f16.gguf", "m.F16.gguf"]
        .map(String::from);
    let choice = choose(&listed, Wish::Any).unwrap();
    assert_eq!(choice.files[0].as_str(), "m.Q4_K_M.gguf");
    assert_eq!(
        choice.others.iter().map(|quant| quant.as_str()).collect::<Vec<_>>(),
        ["Q8_0", "F16", "IQ2_XS"]
    );
    assert_eq!(choose_from(&["m.Q8_0.gguf", "m.Q6_K.gguf"], None).unwrap(), ["m.Q6_K.gguf"]);
}

#[test]
fn several_gguf_models_that_nothing_tells_apart_are_an_error_that_lists_them() {
    let error = choose_from(&["b.gguf", "a.gguf"], None).unwrap_err();
    assert_eq!(error.to_string(), "it holds several weight files: a.gguf, b.gguf");
    let twice = choose_from(&["x.Q4_K_M.gguf", "y.Q4_K_M.gguf", "y.Q8_0.gguf"], None).unwrap_err();
    assert!(matches!(twice, SourceError::SeveralFiles { candidates } if candidates.len() == 2));
}

#[test]
fn a_split_model_is_chosen_with_all_its_parts() {
    let listed = ["Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf"];
    let parts = ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"];
    assert_eq!(choose_from(&listed, Some("Q8_0")).unwrap(), parts);
    assert_eq!(choose_from(&listed, Some(parts[0])).unwrap(), parts);
    assert_eq!(choose_from(&listed[..2], None).unwrap(), parts);
    assert!(matches!(choose_from(&listed[..1], None), Err(SourceError::NoWeights)), "half a model is none");
}

#[test]
fn the_usual_file_may_have_been_renamed_but_not_requantized() {
    let usual = |listed: &[&str]| {
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        choose(&listed, Wish::Usual("m-Q4_K_M.gguf")).map(|choice| choice.files[0].to_string())
    };
    assert_eq!(usual(&["m-Q4_K_M.gguf", "m-Q8_0.gguf"]).unwrap(), "m-Q4_K_M.gguf");
    assert_eq!(usual(&["org_m-Q4_K_M.gguf", "m-Q8_0.gguf"]).unwrap(), "org_m-Q4_K_M.gguf");
    let error = usual(&["m-Q8_0.gguf", "m-Q6_K.gguf"]).unwrap_err();
    assert_eq!(error.to_string(), "it has no Q4_K_M; it has Q6_K, Q8_0");
}

#[test]
fn a_file_is_found_by_name_or_by_a_unique_part_of_it() {
    let listed = ["m.Q8_0.gguf", "m.Q4_K_M.gguf", "m.Q4_K_S.gguf", "config.json"];
    assert_eq!(choose_from(&listed, Some("m.Q8_0.gguf")).unwrap(), ["m.Q8_0.gguf"]);
    assert_eq!(choose_from(&listed, Some("q4_k_m")).unwrap(), ["m.Q4_K_M.gguf"]);
    assert!(matches!(choose_from(&listed, Some("Q4")), Err(SourceError::SeveralFiles { .. })));
    assert!(matches!(choose_from(&listed, Some("other")), Err(SourceError::NotFound { .. })));
    assert!(matches!(choose_from(&listed, Some("Q2_K")), Err(SourceError::NoSuchQuant { .. })));
}

#[test]
fn names_that_could_leave_the_cache_are_not_choosable() {
    let hostile = ["../../evil.gguf", "/etc/evil.gguf", "a/../evil.gguf"];
    assert!(matches!(choose_from(&hostile, None), Err(SourceError::NoWeights)));
}

#[test]
fn a_tokenizer_is_chosen_without_any_weights_and_not_at_all_if_its_file_is_missing() {
    let listed = [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "vocab.json",
    ];
    let listed = listed.map(String::from);
    let files = choose(&listed, Wish::Tokenizer).unwrap().files.into_iter().map(String::from);
    assert_eq!(files.collect::<Vec<_>>(), ["config.json", "tokenizer.json", "chat_template.jinja"]);
    assert!(matches!(choose(&listed[..3], Wish::Tokenizer), Err(SourceError::NotFound { .. })));
}
