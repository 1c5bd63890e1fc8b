//! Which files of a Hugging Face repository make a model.

use std::path::Path;

use crate::error::SourceError;
use crate::manifest::RelativePath;

/// What a folder checkpoint may need besides its weights, by extension.
const COMPANIONS: [&str; 4] = ["json", "jinja", "txt", "model"];

/// Weights that lie beside the real ones: the same in another layout, or only a difference to another model.
const NOT_THE_WEIGHTS: [&str; 2] = ["consolidated", "adapter"];

/// How pooled embedding models keep their pooling.
const POOLING: &str = "1_Pooling/config.json";

/// Chooses from a repository's files: the named one, or the one model it holds. Names that are no plain paths are
/// not choosable.
pub(crate) fn choose(
    listed: &[String],
    wanted: Option<&RelativePath>,
) -> Result<Vec<RelativePath>, SourceError> {
    let names: Vec<RelativePath> = listed.iter().filter_map(|name| RelativePath::parse(name)).collect();
    match wanted {
        Some(wanted) => named(names, wanted),
        None => whole_model(names),
    }
}

/// The file of exactly this name, else the one .gguf file whose name contains it.
fn named(names: Vec<RelativePath>, wanted: &RelativePath) -> Result<Vec<RelativePath>, SourceError> {
    if names.contains(wanted) {
        return Ok(vec![wanted.clone()]);
    }
    let part = wanted.as_str().to_ascii_lowercase();
    let fits = |name: &RelativePath| is_gguf(name) && name.as_str().to_ascii_lowercase().contains(&part);
    only(names.into_iter().filter(fits).collect(), SourceError::NotFound { what: wanted.to_string() })
}

fn whole_model(names: Vec<RelativePath>) -> Result<Vec<RelativePath>, SourceError> {
    let has_config = names.iter().any(|name| name.as_str() == "config.json");
    if has_config && names.iter().any(is_weights) {
        let needed = |name: &RelativePath| is_weights(name) || is_companion(name);
        return Ok(names.into_iter().filter(needed).collect());
    }
    only(names.into_iter().filter(is_gguf).collect(), SourceError::NoWeights)
}

fn only(mut found: Vec<RelativePath>, none: SourceError) -> Result<Vec<RelativePath>, SourceError> {
    match found.len() {
        0 => Err(none),
        1 => Ok(found),
        _ => {
            found.sort_by(|a, b| a.as_str().cmp(b.as_str()));
            Err(SourceError::SeveralFiles { candidates: found.into_iter().map(String::from).collect() })
        }
    }
}

fn extension(name: &RelativePath) -> &str {
    Path::new(name.as_str()).extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

fn is_gguf(name: &RelativePath) -> bool {
    extension(name).eq_ignore_ascii_case("gguf")
}

fn is_at_the_root(name: &RelativePath) -> bool {
    !name.as_str().contains('/')
}

fn is_weights(name: &RelativePath) -> bool {
    let beside = NOT_THE_WEIGHTS.iter().any(|start| name.as_str().starts_with(start));
    is_at_the_root(name) && extension(name) == "safetensors" && !beside
}

fn is_companion(name: &RelativePath) -> bool {
    (is_at_the_root(name) && COMPANIONS.contains(&extension(name))) || name.as_str() == POOLING
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_from(listed: &[&str], wanted: Option<&str>) -> Result<Vec<String>, SourceError> {
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let wanted = wanted.map(|name| RelativePath::parse(name).unwrap());
        choose(&listed, wanted.as_ref()).map(|names| names.into_iter().map(String::from).collect())
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
    fn several_gguf_files_are_an_error_that_lists_them() {
        let error = choose_from(&["m.Q8_0.gguf", "m.Q4_0.gguf"], None).unwrap_err();
        assert_eq!(error.to_string(), "it holds several weight files: m.Q4_0.gguf, m.Q8_0.gguf");
    }

    #[test]
    fn a_file_is_found_by_name_or_by_a_unique_part_of_it() {
        let listed = ["m.Q8_0.gguf", "m.Q4_K_M.gguf", "m.Q4_K_S.gguf", "config.json"];
        assert_eq!(choose_from(&listed, Some("m.Q8_0.gguf")).unwrap(), ["m.Q8_0.gguf"]);
        assert_eq!(choose_from(&listed, Some("q4_k_m")).unwrap(), ["m.Q4_K_M.gguf"]);
        assert!(matches!(choose_from(&listed, Some("Q4")), Err(SourceError::SeveralFiles { .. })));
        assert!(matches!(choose_from(&listed, Some("Q2_K")), Err(SourceError::NotFound { .. })));
    }

    #[test]
    fn names_that_could_leave_the_cache_are_not_choosable() {
        let hostile = ["../../evil.gguf", "/etc/evil.gguf", "a/../evil.gguf"];
        assert!(matches!(choose_from(&hostile, None), Err(SourceError::NoWeights)));
    }
}
