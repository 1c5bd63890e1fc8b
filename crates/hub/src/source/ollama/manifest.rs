//! What the Ollama registry, and Ollama's store, say of a model.
//!
//! ```text
//! {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:…", "size": 1321082688},
//!             {"mediaType": "application/vnd.ollama.image.template", …}, … params, system, license]}
//! ```
//! Only the weights are used: a GGUF file has its own chat template, and Ollama's are written in another language.

use serde::Deserialize;

use crate::checksum::Sha256;
use crate::error::SourceError;

const MODEL: &str = "application/vnd.ollama.image.model";
const ADAPTER: &str = "application/vnd.ollama.image.adapter";

/// A manifest larger than this is none: real ones have a dozen layers.
pub(super) const LARGEST: u64 = 1 << 20;

/// The weights of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weights {
    pub sha256: Sha256,
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    size: u64,
}

impl Weights {
    /// The one layer with weights.
    pub(super) fn of_manifest(json: &[u8]) -> Result<Weights, SourceError> {
        let nonsense = |detail: String| SourceError::BadAnswer { detail };
        let manifest: Manifest =
            serde_json::from_slice(json).map_err(|error| nonsense(format!("a manifest with {error}")))?;
        if manifest.layers.iter().any(|layer| layer.media_type == ADAPTER) {
            return Err(nonsense("the model needs an adapter, which Ropeway can't apply".into()));
        }
        let mut weights = manifest.layers.iter().filter(|layer| layer.media_type == MODEL);
        match (weights.next(), weights.next()) {
            (Some(layer), None) => {
                layer.weights().ok_or_else(|| nonsense("a digest that is no sha256".into()))
            }
            (None, _) => Err(SourceError::NoWeights),
            (Some(_), Some(_)) => Err(nonsense("the model has several files of weights".into())),
        }
    }

    /// How a blob is called in a URL.
    pub(super) fn digest(self) -> String {
        format!("sha256:{}", self.sha256)
    }

    /// How a blob is called on disk.
    pub(super) fn file_name(self) -> String {
        format!("sha256-{}", self.sha256)
    }
}

impl Layer {
    fn weights(&self) -> Option<Weights> {
        let sha256 = Sha256::parse(self.digest.strip_prefix("sha256:")?)?;
        Some(Weights { sha256, bytes: self.size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: &[(&str, &str)]) -> Result<Weights, SourceError> {
        let layer = |(kind, digest): &(&str, &str)| {
            format!(r#"{{"mediaType":"application/vnd.ollama.image.{kind}","digest":"{digest}","size":7}}"#)
        };
        let layers: Vec<_> = layers.iter().map(layer).collect();
        Weights::of_manifest(format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, layers.join(",")).as_bytes())
    }

    #[test]
    fn the_weights_are_found_among_the_layers() {
        let sum = Sha256::of(b"weights");
        let digest = format!("sha256:{sum}");
        let found = manifest(&[("template", "sha256:x"), ("model", &digest), ("license", "")]).unwrap();
        assert_eq!((found.sha256, found.bytes, found.digest()), (sum, 7, digest.clone()));
        assert_eq!(found.file_name(), format!("sha256-{sum}"));
        assert!(matches!(manifest(&[("template", &digest)]), Err(SourceError::NoWeights)));
        let whole = ("model", digest.as_str());
        for bad in [&[("model", "sha256:../../x")][..], &[whole, ("adapter", &digest)], &[whole, whole]] {
            assert!(matches!(manifest(bad), Err(SourceError::BadAnswer { .. })), "{bad:?}");
        }
        assert!(matches!(Weights::of_manifest(b"<html>"), Err(SourceError::BadAnswer { .. })));
    }
}
