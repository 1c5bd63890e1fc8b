//! Why a checkpoint's description of itself cannot be used, told so that the reader knows what to change.

/// A configuration that is missing something, contradicts itself, or asks for what Ropeway does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A key that has no default is absent.
    #[error("the model's configuration lacks `{key}`; the checkpoint is incomplete: fetch it again")]
    Missing {
        /// The key as written in the file.
        key: String,
    },
    /// A key holds something outside its allowed range or type.
    #[error(
        "the model's configuration has `{key}` = {value}, but it must be {allowed}; the checkpoint is damaged or of a kind Ropeway does not support"
    )]
    Bad {
        /// The key as written in the file.
        key: String,
        /// The value found, shortened.
        value: String,
        /// What would have been accepted.
        allowed: String,
    },
    /// No family goes by this name.
    #[error("model family `{found}` is not supported; supported are {supported}")]
    UnsupportedFamily {
        /// `model_type` or `general.architecture` of the checkpoint.
        found: String,
        /// All supported names, comma-separated.
        supported: String,
    },
    /// A window longer than the model was trained for, without a way to stretch it.
    #[error(
        "--context {asked} is longer than the {trained} tokens this model was trained for; add --rope-scaling yarn (or linear, dynamic) to stretch it, or ask for --context {trained}"
    )]
    ContextTooLong {
        /// The window asked for.
        asked: usize,
        /// The longest window without further scaling.
        trained: usize,
    },
    /// A window that cannot be served with any scaling.
    #[error("--context {asked} is not possible; give a number from 1 to {most}")]
    ContextImpossible {
        /// The window asked for.
        asked: usize,
        /// The bound.
        most: usize,
    },
    /// A `--rope-scaling` that cannot be read.
    #[error(
        "--rope-scaling {text} is not understood; give none, linear, dynamic or yarn, optionally with a factor from 1 to 1024 as in yarn:4"
    )]
    BadScalingChoice {
        /// What was given.
        text: String,
    },
    /// A factor that does not reach the window asked for.
    #[error(
        "--rope-scaling reaches {reach} tokens with that factor, --context asks for {asked}; give a factor of {needed}, or leave it out"
    )]
    FactorTooSmall {
        /// The window asked for.
        asked: usize,
        /// The window the factor gives.
        reach: usize,
        /// The smallest whole factor that would do.
        needed: usize,
    },
    /// A `--rope-scaling` on a model whose file carries searched or precomputed divisors.
    #[error(
        "this model carries its own rope scaling as a table, which --rope-scaling cannot replace; leave it out and ask for at most --context {trained}"
    )]
    ScalingFixed {
        /// The longest window the table serves.
        trained: usize,
    },
    /// A `--rope-scaling` on a model whose layers have no rotary embedding to scale.
    #[error("this model has no rotary embedding, so --rope-scaling does nothing; leave it out")]
    NothingToScale,
}
