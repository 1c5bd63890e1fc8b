//! What a client may do beside asking questions, and which models exist for it.
//!
//! ```text
//! admin            load, unload, copy and delete models; everything below
//! pull             fetch models to the disk
//! metrics          read /metrics
//! models=a,b       use these models only; the others answer as if they did not exist
//! ```

use crate::model::same_name;

/// Something that not everyone may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Change which models there are: load, unload, copy, delete; contains every other right.
    Admin,
    /// Fetch models to the disk.
    Pull,
    /// Read the figures of all clients together.
    Metrics,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 3] = [Right::Admin, Right::Pull, Right::Metrics];

    /// Its name in a file of keys.
    pub fn name(self) -> &'static str {
        match self {
            Right::Admin => "admin",
            Right::Pull => "pull",
            Right::Metrics => "metrics",
        }
    }
}

/// The rights of a client. The default is to use every model, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    granted: Vec<Right>,
    /// The only models it may use; `None` is all of them.
    models: Option<Vec<String>>,
}

impl Rights {
    /// Those of an operator.
    pub fn everything() -> Self {
        Self { granted: vec![Right::Admin], models: None }
    }

    /// Those of someone without a key, where one is needed: no model exists.
    pub fn nothing() -> Self {
        Self { granted: Vec::new(), models: Some(Vec::new()) }
    }

    /// These and one more.
    pub fn with(mut self, right: Right) -> Self {
        self.granted.push(right);
        self
    }

    /// Only these models may be used.
    pub fn with_models_only(mut self, models: Vec<String>) -> Self {
        self.models = Some(models);
        self
    }

    /// Whether a right is among them.
    pub fn may(&self, right: Right) -> bool {
        self.granted.iter().any(|granted| [right, Right::Admin].contains(granted))
    }

    /// Whether the model of this full name exists for the client.
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|names| names.iter().any(|name| same_name(model, name)))
    }

    /// Whether only some models exist for the client.
    pub fn are_limited_to_models(&self) -> bool {
        self.models.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_contains_every_other_right_and_the_default_none() {
        let only = |right| Rights::default().with(right);
        for right in Right::ALL {
            assert!(Rights::everything().may(right) && only(right).may(right));
            assert!(!Rights::default().may(right) && !Rights::nothing().may(right));
        }
        assert!(!only(Right::Pull).may(Right::Admin) && !only(Right::Pull).may(Right::Metrics));
    }

    #[test]
    fn models_are_named_with_or_without_their_tag() {
        let rights = Rights::default().with_models_only(vec!["smollm2".into(), "qwen3:4b".into()]);
        assert!(rights.may_use("smollm2:135m") && rights.may_use("qwen3:4b"));
        assert!(!rights.may_use("qwen3:8b") && !rights.may_use("llama3:8b"));
        assert!(Rights::default().may_use("llama3:8b") && !Rights::nothing().may_use("smollm2:135m"));
    }
}
