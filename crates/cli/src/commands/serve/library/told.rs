//! What clients are told when something goes wrong with models on disk. Where the store is, and what is wrong with its files,
//! is for the log only.

use ropeway_hub::{HubError, SourceError};
use ropeway_server::error::{ApiError, Kind};

use crate::failure::Failure;

/// What the hub says, with what to do about it.
pub fn told(error: &HubError) -> ApiError {
    match error {
        HubError::NotPulled { name } => missing(format!(
            "model {name:?} not found on this machine; fetch it with POST /api/pull, or `ropeway pull {name}`"
        )),
        HubError::UnknownModel { known, .. } => {
            let near = if known.is_empty() {
                String::new()
            } else {
                format!(" (did you mean {}?)", known.join(", "))
            };
            missing(format!(
                "model not found: {error}{near}; a model is named as in /api/tags, or as org/repo on Hugging Face; paths are \
                 for --model"
            ))
        }
        HubError::Damaged { name, .. } => {
            tracing::error!(target: "library", "{error}; {}", error.hint());
            missing(format!(
                "{name} is damaged; fetch it again with POST /api/pull, or `ropeway pull {name}`"
            ))
        }
        HubError::AllSourcesFailed { attempts, .. } => {
            let kind = attempts.last().map_or(Kind::Overloaded, |attempt| kind_of(&attempt.error));
            ApiError::new(kind, error.to_string())
        }
        HubError::Cancelled => ApiError::new(
            Kind::Overloaded,
            "the download was stopped; ask again, and it goes on where it was",
        ),
        HubError::BadAlias { .. } | HubError::HasOtherNames { .. } => {
            ApiError::invalid(format!("{error}; {}", error.hint()))
        }
        _ => {
            tracing::error!(target: "library", "{error}; {}", error.hint());
            unusable_store()
        }
    }
}

/// The error for a file of the store that can't be read or written.
pub fn unusable_store() -> ApiError {
    ApiError::new(Kind::Internal, "the store of models can't be read or written; see the server's log")
}

/// The error for a model that is not there.
pub fn missing(message: impl Into<String>) -> ApiError {
    ApiError::new(Kind::NotFound, message).about("model").coded("model_not_found")
}

/// The error for a model whose files can't be used.
pub fn unloadable(name: &str, failure: &Failure) -> ApiError {
    ApiError::invalid(format!("{name} can't be loaded: {failure}")).about("model")
}

/// The error for a question to a model that answers none.
pub fn embeds_only(name: &str) -> ApiError {
    let what = format!(
        "{name:?} does not support chat: it embeds texts; serve it with --embed-model and ask /api/embed"
    );
    ApiError::invalid(what).about("model")
}

/// The error for a change to what belongs to the operator.
pub fn operators_own(name: &str) -> ApiError {
    ApiError::invalid(format!("{name:?} is a file of the operator's own; it can be loaded and unloaded only"))
}

/// Whose fault it is that a source delivered nothing: the name's, or nobody's that a client knows.
fn kind_of(error: &SourceError) -> Kind {
    match error {
        SourceError::NotFound { .. }
        | SourceError::Moved { .. }
        | SourceError::NoSuchQuant { .. }
        | SourceError::Refused { .. } => Kind::NotFound,
        SourceError::SeveralFiles { .. } | SourceError::NoWeights => Kind::Invalid,
        SourceError::DiskFull { .. } | SourceError::NoSpace { .. } => Kind::NoRoom,
        _ => Kind::Overloaded,
    }
}
