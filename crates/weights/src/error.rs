//! What can be wrong with a checkpoint, in words that say what to do next.
//!
//! [`WeightsError`] is about paths and tensors; the nested errors are about one format and carry the place in the file.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a checkpoint can't be opened, or a tensor not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused.
    #[error("can't read {path}: {source}; check that it exists and that you may read it", path = path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder, pipe or device where a file was expected.
    #[error("{path} is not a regular file; give the path of a model file", path = path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// A file that is neither GGUF nor anything else known.
    #[error(
        "{path} is not a GGUF file; give a .gguf file, or the folder that holds config.json and *.safetensors",
        path = path.display()
    )]
    UnknownFile {
        /// What was given.
        path: PathBuf,
    },
    /// A folder without a model.
    #[error(
        "{path} holds neither a .gguf file nor config.json with *.safetensors; give the folder the model was \
         downloaded into",
        path = path.display()
    )]
    NoModel {
        /// The folder.
        path: PathBuf,
    },
    /// A folder with several GGUF files.
    #[error("{path} holds {count} .gguf files; give the path of the one to load", path = path.display())]
    SeveralModels {
        /// The folder.
        path: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// A JSON file that is longer than any real one.
    #[error(
        "{path} has {bytes} bytes, more than the {limit} such a file may have; download the model again",
        path = path.display()
    )]
    JsonTooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A JSON file that does not parse.
    #[error("{path} is not valid JSON ({source}); download the model again", path = path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// `config.json` is valid JSON but not an object.
    #[error("{path} is not a JSON object; download the model again", path = path.display())]
    ConfigNotAnObject {
        /// The file.
        path: PathBuf,
    },
    /// The GGUF file is broken or of an unknown kind.
    #[error("{path}: {source}", path = path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// A safetensors file is broken.
    #[error("{path}: {source}", path = path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SafetensorsError,
    },
    /// The shard index is broken or does not fit the shards.
    #[error("{path}: {source}", path = path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        source: IndexError,
    },
    /// An MLX-quantised tensor or its description is broken.
    #[error("{path}: {source}", path = path.display())]
    Mlx {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: MlxError,
    },
    /// A quantisation this reader does not know.
    #[error(
        "{path} is quantised with `{method}`, which Ropeway does not read; use the plain bf16 checkpoint, its GGUF or \
         its MLX version",
        path = path.display()
    )]
    UnsupportedQuantisation {
        /// The folder.
        path: PathBuf,
        /// The method its config names.
        method: String,
    },
    /// The checkpoint has no tensor of that name.
    #[error("{path} has no tensor `{name}`; the file is incomplete or of another model family", path = path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor asked for.
        name: String,
    },
    /// The tensor exists but its numbers are of a type no weight has.
    #[error(
        "tensor `{name}` of {path} holds {dtype} numbers; weights must be F32, F16 or BF16 (or MLX-quantised)",
        path = path.display()
    )]
    UnsupportedType {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor asked for.
        name: String,
        /// Its type, as the file names it.
        dtype: String,
    },
}

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
    /// One part of a model split over several files.
    #[error(
        "this is one of {parts} parts of a split model; merge them (llama-gguf-split --merge) and load the result"
    )]
    Split {
        /// How many parts there are.
        parts: u64,
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
