//! Tokenizers without their models: what is needed to speak to a server that computes the model elsewhere.

use std::path::PathBuf;

use crate::cancel::Cancel;
use crate::error::{Attempt, HubError};
use crate::reference::ModelRef;
use crate::source::huggingface::{self, Request, Wanted};
use crate::source::selection::Wish;
use crate::source::{Place, Surroundings};
use crate::{Hub, Report};

impl Hub {
    /// The folder with the tokenizer files of a repository on the Hugging Face hub, fetched into the cache that its own tools
    /// share. No weights are fetched. Other names are [`HubError::NotPulled`].
    pub fn tokenizer(&self, name: &str, cancel: &Cancel, report: Report<'_>) -> Result<PathBuf, HubError> {
        let ModelRef::HuggingFace(file) = self.parse_name(name)? else {
            return Err(HubError::NotPulled { name: name.to_owned() });
        };
        let wanted = Wanted::Chosen(Wish::Tokenizer);
        let request = Request { repo: &file.repo, revision: file.revision(), wanted };
        let around = Surroundings { config: &self.config, cancel };
        let fetched = huggingface::fetch(&around, &request, report).map_err(|error| {
            let source = request.label();
            HubError::all_failed(name, vec![Attempt { source, error }])
        })?;
        match fetched.place {
            Place::Shared(folder) => Ok(folder),
            Place::Staged => Err(HubError::NotPulled { name: name.to_owned() }),
        }
    }
}
