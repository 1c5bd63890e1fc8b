//! Windows other than the checkpoint's own: `--context` and `--rope-scaling`.
//!
//! The window is fixed before anything is computed, and every scaling that depends on it is resolved from it once. A
//! sequence's results therefore do not depend on how long it, or anything in its batch, has grown.

use std::str::FromStr;

use crate::{
    SpecError,
    spec::{DecoderSpec, RopeIndex, Scaling, YarnScaling},
};

/// The longest window anyone may ask for: positions stay exact in every number type used for them.
pub const MAX_CONTEXT: usize = 1 << 24;

/// The largest factor anyone may ask for; beyond it nothing of a trained model is left.
const MAX_FACTOR: f64 = 1024.0;

/// How to stretch a model's rotary embedding, as a user asks for it: `yarn`, `linear:2`, ...
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScalingChoice {
    /// The way of stretching.
    pub method: ScalingMethod,
    /// How many times longer the window becomes; `None` takes just what the window needs.
    pub factor: Option<f64>,
}

/// The ways of stretching that need nothing but a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingMethod {
    /// Not at all, whatever the window.
    None,
    /// All frequencies alike.
    Linear,
    /// By a larger base.
    Dynamic,
    /// Low frequencies only.
    Yarn,
}

impl FromStr for RopeScalingChoice {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let bad = || SpecError::BadScalingChoice { text: text.chars().take(60).collect() };
        let (method, factor) = match text.split_once(':') {
            Some((method, factor)) => (method, Some(factor.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let method = match method {
            "none" if factor.is_none() => ScalingMethod::None,
            "linear" => ScalingMethod::Linear,
            "dynamic" => ScalingMethod::Dynamic,
            "yarn" => ScalingMethod::Yarn,
            _ => return Err(bad()),
        };
        if factor.is_some_and(|factor| !(1.0..=MAX_FACTOR).contains(&factor)) {
            return Err(bad());
        }
        Ok(Self { method, factor })
    }
}

impl DecoderSpec {
    /// The same model serving a window of `context` tokens. `choice` replaces the checkpoint's own rope scaling; without
    /// one the window must not be longer than the checkpoint's.
    pub fn with_context(
        mut self,
        context: usize,
        choice: Option<RopeScalingChoice>,
    ) -> Result<DecoderSpec, SpecError> {
        if !(1..=MAX_CONTEXT).contains(&context) {
            return Err(SpecError::ContextImpossible { asked: context, most: MAX_CONTEXT });
        }
        match choice {
            Some(choice) => self.stretch(context, choice)?,
            None if context > self.max_context => {
                return Err(SpecError::ContextTooLong { asked: context, trained: self.max_context });
            }
            None => {}
        }
        self.context = context;
        Ok(self)
    }

    fn stretch(&mut self, context: usize, choice: RopeScalingChoice) -> Result<(), SpecError> {
        let stretched = self.long_range_ropes();
        if stretched.is_empty() {
            return Err(SpecError::NothingToScale);
        }
        for RopeIndex(index) in stretched {
            let original = self.original_context(&self.ropes[index].scaling)?;
            self.ropes[index].scaling = choice.resolve(context, original)?;
        }
        Ok(())
    }

    /// The rotary embeddings of layers that see the whole window; where all slide, of all layers.
    fn long_range_ropes(&self) -> Vec<RopeIndex> {
        let used = |index: usize, full_only: bool| {
            let mut layers = self.layers.iter().filter(|layer| !full_only || layer.window.is_none());
            layers.any(|layer| layer.rope == Some(RopeIndex(index)))
        };
        let chosen =
            |full_only| (0..self.ropes.len()).filter(|i| used(*i, full_only)).map(RopeIndex).collect();
        let full: Vec<RopeIndex> = chosen(true);
        if full.is_empty() { chosen(false) } else { full }
    }

    /// The window before any scaling.
    fn original_context(&self, scaling: &Scaling) -> Result<usize, SpecError> {
        match scaling {
            Scaling::None => Ok(self.max_context),
            Scaling::Linear { factor } => Ok(((self.max_context as f64 / factor) as usize).max(1)),
            Scaling::Llama3(llama3) => Ok(llama3.original_context),
            Scaling::Yarn(yarn) => Ok(yarn.original_context),
            Scaling::Dynamic { original_context, .. } => Ok(*original_context),
            Scaling::LongRope(_) | Scaling::Factors(_) => {
                Err(SpecError::ScalingFixed { trained: self.max_context })
            }
        }
    }
}

impl RopeScalingChoice {
    /// The scaling that lets a model trained on `original` tokens serve `context`.
    fn resolve(self, context: usize, original: usize) -> Result<Scaling, SpecError> {
        let needed = (context as f64 / original as f64).max(1.0);
        let factor = self.factor.unwrap_or(needed);
        let reach = (original as f64 * factor).round() as usize;
        let too_long = || SpecError::FactorTooSmall { asked: context, reach, needed: needed.ceil() as usize };
        match self.method {
            ScalingMethod::None => Ok(Scaling::None),
            // The base follows the window, so that any factor reaches any window.
            ScalingMethod::Dynamic => Ok(Scaling::Dynamic { factor, original_context: original }),
            _ if reach < context => Err(too_long()),
            ScalingMethod::Linear => Ok(Scaling::Linear { factor }),
            ScalingMethod::Yarn => Ok(Scaling::Yarn(YarnScaling::paper(factor, original))),
        }
    }
}

impl YarnScaling {
    /// The paper's recommended parameters for a window `factor` times the original one.
    pub fn paper(factor: f64, original_context: usize) -> Self {
        let attention_factor = Self::weighted_attention(factor, 1.0);
        Self { factor, original_context, beta_fast: 32.0, beta_slow: 1.0, attention_factor, truncate: true }
    }

    /// The paper's `0.1 ln(factor) + 1`, with a weight on its first term.
    pub fn weighted_attention(factor: f64, weight: f64) -> f64 {
        0.1 * weight * factor.max(1.0).ln() + 1.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::RopeSpec;

    fn spec(extra: &serde_json::Value) -> DecoderSpec {
        let mut config = json!({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 1000});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        DecoderSpec::from_hugging_face(&config).unwrap()
    }

    fn stretched(extra: &serde_json::Value, context: usize, choice: &str) -> Result<RopeSpec, SpecError> {
        let spec = spec(extra).with_context(context, Some(choice.parse()?))?;
        assert_eq!(spec.context, context);
        Ok(spec.ropes[0].clone())
    }

    #[test]
    fn a_shorter_window_needs_no_flag_and_leaves_the_rope_alone() {
        let plain = spec(&json!({}));
        let short = plain.clone().with_context(10, None).unwrap();
        assert_eq!((short.context, short.max_context), (10, 1000));
        assert_eq!(short.ropes, plain.ropes);
    }

    #[test]
    fn a_longer_window_without_scaling_names_the_flag_to_give() {
        let error = spec(&json!({})).with_context(1001, None).unwrap_err();
        assert_eq!(error, SpecError::ContextTooLong { asked: 1001, trained: 1000 });
        assert!(error.to_string().contains("--rope-scaling yarn"), "{error}");
    }

    #[test]
    fn the_factor_defaults_to_what_the_window_needs() {
        let linear = stretched(&json!({}), 4000, "linear").unwrap();
        assert_eq!(linear.scaling, Scaling::Linear { factor: 4.0 });
        let yarn = stretched(&json!({}), 4000, "yarn").unwrap();
        assert_eq!(yarn.scaling, Scaling::Yarn(YarnScaling::paper(4.0, 1000)));
        let dynamic = stretched(&json!({}), 4000, "dynamic:2").unwrap();
        assert_eq!(dynamic.scaling, Scaling::Dynamic { factor: 2.0, original_context: 1000 });
        assert_eq!(stretched(&json!({}), 4000, "none").unwrap().scaling, Scaling::None);
    }

    #[test]
    fn a_factor_too_small_for_the_window_says_which_would_do() {
        let error = stretched(&json!({}), 4000, "yarn:2").unwrap_err();
        assert_eq!(error, SpecError::FactorTooSmall { asked: 4000, reach: 2000, needed: 4 });
    }

    #[test]
    fn a_choice_replaces_the_files_own_scaling_from_its_original_window() {
        let own = json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 500}});
        assert_eq!(spec(&own).max_context, 1000);
        let longer = stretched(&own, 2000, "yarn").unwrap();
        assert_eq!(longer.scaling, Scaling::Yarn(YarnScaling::paper(4.0, 500)));
    }

    #[test]
    fn only_the_ropes_of_full_layers_are_stretched() {
        let config = json!({"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 512});
        let spec = DecoderSpec::from_hugging_face(&config).unwrap();
        let longer = spec.clone().with_context(1 << 18, "linear".parse().ok()).unwrap();
        assert_eq!(longer.ropes[0].scaling, Scaling::Linear { factor: 2.0 });
        assert_eq!(longer.ropes[1], spec.ropes[1]);
    }

    #[test]
    fn divisors_that_came_with_the_file_cannot_be_replaced() {
        let divisors = vec![1.5; 8];
        let own =
            json!({"rope_scaling": {"type": "longrope", "short_factor": divisors, "long_factor": divisors}});
        assert_eq!(stretched(&own, 2000, "yarn").unwrap_err(), SpecError::ScalingFixed { trained: 1000 });
    }

    #[test]
    fn a_model_without_rope_has_nothing_to_scale() {
        let mut spec = spec(&json!({}));
        spec.layers.iter_mut().for_each(|layer| layer.rope = None);
        assert_eq!(spec.with_context(2000, "yarn".parse().ok()).unwrap_err(), SpecError::NothingToScale);
    }

    #[test]
    fn impossible_windows_and_unreadable_choices_are_refused() {
        for context in [0, MAX_CONTEXT + 1, usize::MAX] {
            assert!(matches!(
                spec(&json!({})).with_context(context, "yarn".parse().ok()),
                Err(SpecError::ContextImpossible { .. })
            ));
        }
        for text in
            ["", "ntk", "yarn:", "yarn:0.5", "yarn:NaN", "linear:inf", "linear:2000", "none:2", "yarn:4:4"]
        {
            let error = text.parse::<RopeScalingChoice>().unwrap_err();
            assert!(error.to_string().contains("yarn:4"), "{text}: {error}");
        }
    }
}
