//! What can be wrong with a Hugging Face folder: a safetensors file, the shard index, an MLX-quantised module.

use thiserror::Error;

/// What is wrong with a safetensors file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// Shorter than its length field.
    #[error("the file has {len} bytes, too few for a header; download it again")]
    TooShort {
        /// Length of the file.
        len: usize,
    },
    /// The header is longer than the file or than any real one.
    #[error(
        "the header claims {claimed} bytes, but the file allows {limit}; it is cut short or another format: download \
         it again"
    )]
    HeaderLength {
        /// What the file says.
        claimed: u64,
        /// The most it can be.
        limit: u64,
    },
    /// The header is not the JSON it should be.
    #[error("the header is not valid ({0}); the file is damaged: download it again")]
    Header(#[from] serde_json::Error),
    /// A zero dimension or a product that can't be.
    #[error("tensor `{name}` has the impossible shape {shape:?}; the file is damaged")]
    Shape {
        /// The tensor.
        name: String,
        /// Its dimensions.
        shape: Vec<u64>,
    },
    /// The data offsets disagree with the shape and type.
    #[error("tensor `{name}` takes {given} bytes, but its shape and type need {wanted}; the file is damaged")]
    Size {
        /// The tensor.
        name: String,
        /// What the offsets give.
        given: u64,
        /// What shape and type need.
        wanted: u64,
    },
    /// Data offsets that run backwards or past the end of the file.
    #[error(
        "tensor `{name}` lies at {start}..{end} of {len} data bytes; the file is cut short or damaged: download it again"
    )]
    OutOfFile {
        /// The tensor.
        name: String,
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// Length of the data section.
        len: u64,
    },
    /// Two tensors share bytes, or bytes belong to none.
    #[error(
        "tensor `{name}` begins at {start}, not at {wanted} where the one before ends; the file is damaged"
    )]
    NotContiguous {
        /// The tensor.
        name: String,
        /// Where it begins.
        start: u64,
        /// Where it should.
        wanted: u64,
    },
    /// Bytes after the last tensor.
    #[error(
        "{bytes} bytes follow the last tensor; the file is two files in one or damaged: download it again"
    )]
    Trailing {
        /// How many.
        bytes: u64,
    },
    /// A name that another file of the folder has too.
    #[error(
        "tensor `{name}` is also in another file of the folder; remove the files that do not belong to the model"
    )]
    Duplicate {
        /// The tensor.
        name: String,
    },
}

/// What is wrong with `model.safetensors.index.json`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// It names no tensor.
    #[error("the index lists no tensors; download the model again")]
    Empty,
    /// A shard that is not a plain file name.
    #[error("the index puts `{tensor}` into `{shard}`, which is not a file name inside the folder")]
    OutsideFolder {
        /// The tensor.
        tensor: String,
        /// What should have been a file name.
        shard: String,
    },
    /// A shard without the tensor it should hold.
    #[error("the index puts `{tensor}` into `{shard}`, but it is not there; download that file again")]
    NotInShard {
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: String,
    },
}

/// What is wrong with an MLX-quantised folder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MlxError {
    /// The description in config.json is not readable.
    #[error(
        "`quantization` of `{module}` in config.json is not readable: {problem}; convert the model again"
    )]
    Config {
        /// The module, or `*` for the default.
        module: String,
        /// What is wrong.
        problem: String,
    },
    /// A mode, width or group this reader does not know.
    #[error(
        "`{module}` is quantised as {what}; Ropeway reads affine 4- and 8-bit with groups of 32, 64 or 128"
    )]
    Unsupported {
        /// The module, or `*` for the default.
        module: String,
        /// What it says.
        what: String,
    },
    /// Packed weights that config.json says nothing about.
    #[error(
        "`{module}` has packed weights, but config.json has no `quantization` for it; get the model's config.json"
    )]
    Undescribed {
        /// The module.
        module: String,
    },
    /// One of the three tensors is missing.
    #[error("`{module}` has packed weights but no `{missing}`; the folder is incomplete: download it again")]
    Incomplete {
        /// The module.
        module: String,
        /// Name of the missing part.
        missing: &'static str,
    },
    /// The three tensors do not fit together.
    #[error(
        "`{module}`: {found} do not fit {bits} bits in groups of {group}; config.json belongs to another model or the \
         file is damaged"
    )]
    Shapes {
        /// The module.
        module: String,
        /// The three shapes.
        found: String,
        /// Width by config.json.
        bits: u32,
        /// Group by config.json.
        group: usize,
    },
    /// Scales or biases that are not floating point, or not of one type.
    #[error(
        "`{module}` has scales of type {scales} and biases of type {biases}; both must be one of F32, F16, BF16"
    )]
    ScaleType {
        /// The module.
        module: String,
        /// Type of the scales.
        scales: String,
        /// Type of the biases.
        biases: String,
    },
}
