//! `ollama:[namespace/]name[:tag]`: a model of the Ollama registry, or of Ollama's store on this machine.

use std::fmt;

use super::ModelId;

/// What a name in the registry is made of at most.
const LONGEST_PART: usize = 80;

/// The namespace of models without one.
const LIBRARY: &str = "library";

/// How names of this kind begin; the others are what Ollama itself and its pages write.
const PREFIXES: [&str; 5] =
    ["ollama:", "https://registry.ollama.ai/", "registry.ollama.ai/", "https://ollama.com/", "ollama.com/"];

/// A model of the Ollama registry; its parts are plain path components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OllamaName {
    /// `library`, or who published it.
    pub namespace: String,
    /// The model.
    pub name: String,
    /// Its size and kind; `latest` if none is named.
    pub tag: String,
}

impl OllamaName {
    /// Understands a name that says where it is from.
    pub(super) fn parse_prefixed(text: &str) -> Option<OllamaName> {
        PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).and_then(OllamaName::parse)
    }

    /// Understands `[namespace/]name[:tag]`.
    pub fn parse(text: &str) -> Option<OllamaName> {
        let (path, tag) = text.split_once(':').unwrap_or((text, "latest"));
        let (namespace, name) = path.split_once('/').unwrap_or((LIBRARY, path));
        let fits = [namespace, name, tag].into_iter().all(is_part);
        fits.then(|| OllamaName { namespace: namespace.into(), name: name.into(), tag: tag.into() })
    }

    /// No other kind of name has a folder with `@` before `--`.
    pub(super) fn id(&self) -> ModelId {
        let OllamaName { namespace, name, tag } = self;
        ModelId { name: self.to_string(), folder: format!("ollama@{namespace}--{name}--{tag}") }
    }

    /// The name that a folder of the store was made from.
    pub(super) fn name_of_folder(folder: &str) -> Option<String> {
        let mut parts = folder.strip_prefix("ollama@")?.splitn(3, "--");
        let (namespace, name, tag) = (parts.next()?.into(), parts.next()?.into(), parts.next()?.into());
        Some(OllamaName { namespace, name, tag }.to_string())
    }
}

fn is_part(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=LONGEST_PART).contains(&part.len())
        && part.chars().all(allowed)
        && part.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !part.contains("--")
}

impl fmt::Display for OllamaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OllamaName { namespace, name, tag } = self;
        match namespace.as_str() {
            LIBRARY => write!(f, "ollama:{name}:{tag}"),
            _ => write!(f, "ollama:{namespace}/{name}:{tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_namespace_and_a_tag_even_if_none_is_written() {
        for (text, shown, folder) in [
            ("ollama:llama3.2", "ollama:llama3.2:latest", "ollama@library--llama3.2--latest"),
            ("ollama:llama3.2:1b", "ollama:llama3.2:1b", "ollama@library--llama3.2--1b"),
            ("ollama:team/mine:7b-q8_0", "ollama:team/mine:7b-q8_0", "ollama@team--mine--7b-q8_0"),
            ("registry.ollama.ai/library/qwen3:0.6b", "ollama:qwen3:0.6b", "ollama@library--qwen3--0.6b"),
        ] {
            let id = OllamaName::parse_prefixed(text).unwrap().id();
            assert_eq!((id.name.as_str(), id.folder.as_str()), (shown, folder));
            assert_eq!(OllamaName::name_of_folder(folder).unwrap(), shown);
        }
    }

    #[test]
    fn a_part_that_could_leave_its_folder_is_refused() {
        for bad in [
            "llama3.2",
            "ollama:",
            "ollama:../x",
            "ollama:a/b/c",
            "ollama:a:b:c",
            "ollama:a:",
            "ollama:.a",
            "ollama:a--b",
        ] {
            assert_eq!(OllamaName::parse_prefixed(bad), None, "{bad}");
        }
    }
}
