//! What can be wrong with a GGUF file.

use thiserror::Error;

/// What is wrong with a GGUF file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The first four bytes are not `GGUF`.
    #[error("the file does not begin with `GGUF`; it is another format or damaged")]
    Magic,
    /// A version this reader does not know.
    #[error(
        "GGUF version {0} is not readable, only 2 and 3 are; convert the model again with a current converter"
    )]
    Version(u32),
    /// Made for a big-endian machine.
    #[error("the file is big-endian; get or convert a little-endian version of the model")]
    BigEndian,
    /// The file ends inside something.
    #[error("the file ends at byte {len} inside {what}, which begins at byte {at}; download it again")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it begins.
        at: usize,
        /// Length of the file.
        len: usize,
    },
    /// A count no real file has.
    #[error(
        "the file claims {claimed} {what}, more than the {limit} that can be; it is damaged: download it again"
    )]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// What the file says.
        claimed: u64,
        /// The most there can be.
        limit: u64,
    },
    /// A string is not UTF-8.
    #[error("{what} at byte {at} is not UTF-8; the file is damaged: download it again")]
    Utf8 {
        /// What the string is.
        what: &'static str,
        /// Where it begins.
        at: usize,
    },
    /// A metadata value's type number is unknown.
    #[error(
        "metadata `{key}` has the unknown value type {code}; the file is damaged or from a newer converter"
    )]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type number.
        code: u32,
    },
    /// An array of arrays.
    #[error("metadata `{key}` is an array of arrays, which no model needs; convert the model again")]
    NestedArray {
        /// The metadata key.
        key: String,
    },
    /// A bool that is neither 0 nor 1.
    #[error("metadata `{key}` holds the bool {byte}, which is neither 0 nor 1; the file is damaged")]
    Bool {
        /// The metadata key.
        key: String,
        /// The byte found.
        byte: u8,
    },
    /// A metadata key twice.
    #[error("metadata `{key}` appears twice; the file is damaged: download or convert it again")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// `general.alignment` is not usable.
    #[error("general.alignment must be a power of two up to {limit}; convert the model again")]
    Alignment {
        /// The largest accepted.
        limit: u32,
    },
    /// A part of a split model whose name does not say which one it is.
    #[error(
        "this is one of {parts} parts of a split model, and its name does not end with -00001-of-{parts:05}.gguf; \
         give the parts the names they were published with"
    )]
    PartName {
        /// How many parts there are.
        parts: u64,
    },
    /// A part of a split model that is not the part its name says.
    #[error(
        "the file says it is part {found} of {parts} and its name says another; download the parts again"
    )]
    WrongPart {
        /// What the file says, counted from 1.
        found: u64,
        /// How many parts the file knows of.
        parts: u64,
    },
    /// Parts whose tensors together are not what the first part promises.
    #[error("the parts hold {found} tensors instead of {promised}; download the parts again")]
    PartsTensors {
        /// Tensors in all parts.
        found: usize,
        /// What the first part says.
        promised: u64,
    },
    /// A tensor name twice.
    #[error("tensor `{name}` appears twice; the file is damaged: download or convert it again")]
    DuplicateTensor {
        /// The name.
        name: String,
    },
    /// A tensor with no dimensions, or more than four.
    #[error("tensor `{name}` has {dims} dimensions, not 1 to 4; the file is damaged")]
    DimensionCount {
        /// The tensor.
        name: String,
        /// How many it claims.
        dims: u32,
    },
    /// A dimension of zero, or a product that can't be.
    #[error("tensor `{name}` has the impossible shape {shape:?} (GGUF order); the file is damaged")]
    Shape {
        /// The tensor.
        name: String,
        /// Its dimensions, innermost first.
        shape: Vec<u64>,
    },
    /// A tensor type this reader does not know.
    #[error(
        "tensor `{name}` has type {kind}, which Ropeway does not read; use a Q4_0..Q8_0, Q2_K..Q6_K, IQ4, F16, BF16 \
         or F32 version of the model"
    )]
    TensorType {
        /// The tensor.
        name: String,
        /// Name or number of the type.
        kind: String,
    },
    /// Rows that are not whole blocks.
    #[error(
        "tensor `{name}` has rows of {cols} values, not a multiple of its type's {block}; convert the model again"
    )]
    PartialBlock {
        /// The tensor.
        name: String,
        /// Length of a row.
        cols: usize,
        /// Values in a block.
        block: usize,
    },
    /// A tensor's data does not begin on the alignment.
    #[error("tensor `{name}` begins at offset {offset}, not a multiple of {alignment}; the file is damaged")]
    Misaligned {
        /// The tensor.
        name: String,
        /// Its offset into the data.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// A tensor's data reaches past the end of the file.
    #[error(
        "tensor `{name}` reaches past the end of the file ({len} bytes); it is cut short: download it again"
    )]
    OutOfFile {
        /// The tensor.
        name: String,
        /// Length of the file.
        len: usize,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap; the file is damaged: download or convert it again")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The one that begins inside it.
        second: String,
    },
    /// Bytes after the last tensor.
    #[error(
        "{bytes} bytes follow the last tensor; the file is two files in one or damaged: download it again"
    )]
    Trailing {
        /// How many.
        bytes: usize,
    },
}
