//! Mixtures of experts as the two file forms describe them.

use super::{
    fields::{Fields, Key},
    keys,
};
use crate::{SpecError, spec::ExpertsSpec};

/// Where a family keeps the two numbers that differ in name.
pub(super) struct ExpertKeys {
    /// How many experts there are.
    pub(super) count: Key,
    /// How wide each is.
    pub(super) width: Key,
}

/// Reads a mixture of experts; `None` when the file has none.
pub(super) fn read(fields: &Fields<'_>, expert_keys: &ExpertKeys) -> Result<Option<ExpertsSpec>, SpecError> {
    let most = *keys::EXPERTS.end();
    let Some(experts) = fields.maybe_count(expert_keys.count, 0..=most)?.filter(|count| *count > 0) else {
        return Ok(None);
    };
    let top_k = fields.count(keys::EXPERTS_USED, keys::EXPERTS)?;
    if top_k > experts {
        return Err(fields.bad(keys::EXPERTS_USED, &format!("at most the {experts} experts there are")));
    }
    let intermediate = fields.count(expert_keys.width, keys::WIDTH)?;
    Ok(Some(ExpertsSpec { experts, top_k, intermediate, normalise: true }))
}
