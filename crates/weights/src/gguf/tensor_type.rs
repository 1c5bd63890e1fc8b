//! The tensor types of GGUF: which number means which format.

use crate::FloatType;
use crate::mapping::Region;
use crate::packed::{self, Codec};
use crate::tensor::Storage;

/// A type this reader can read.
#[derive(Debug, Clone, Copy)]
pub(super) enum TensorType {
    Float(FloatType),
    Blocks(&'static Codec),
}

static Q4_0: Codec = Codec::of::<packed::Q4_0>();
static Q4_1: Codec = Codec::of::<packed::Q4_1>();
static Q5_0: Codec = Codec::of::<packed::Q5_0>();
static Q5_1: Codec = Codec::of::<packed::Q5_1>();
static Q8_0: Codec = Codec::of::<packed::Q8_0>();
static Q2_K: Codec = Codec::of::<packed::Q2K>();
static Q3_K: Codec = Codec::of::<packed::Q3K>();
static Q4_K: Codec = Codec::of::<packed::Q4K>();
static Q5_K: Codec = Codec::of::<packed::Q5K>();
static Q6_K: Codec = Codec::of::<packed::Q6K>();
static IQ4_NL: Codec = Codec::of::<packed::Iq4Nl>();
static IQ4_XS: Codec = Codec::of::<packed::Iq4Xs>();

/// Types that exist but are not read, for the error text.
const UNREAD: [(u32, &str); 20] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (39, "MXFP4"),
];

impl TensorType {
    /// The type with this number, or what to call it in an error.
    pub(super) fn from_code(code: u32) -> Result<TensorType, String> {
        let codec = match code {
            0 => return Ok(TensorType::Float(FloatType::F32)),
            1 => return Ok(TensorType::Float(FloatType::F16)),
            30 => return Ok(TensorType::Float(FloatType::Bf16)),
            2 => &Q4_0,
            3 => &Q4_1,
            6 => &Q5_0,
            7 => &Q5_1,
            8 => &Q8_0,
            10 => &Q2_K,
            11 => &Q3_K,
            12 => &Q4_K,
            13 => &Q5_K,
            14 => &Q6_K,
            20 => &IQ4_NL,
            23 => &IQ4_XS,
            _ => return Err(unread_name(code)),
        };
        Ok(TensorType::Blocks(codec))
    }

    /// Values that can't be taken apart: a row is a multiple of this.
    pub(super) fn block_values(self) -> usize {
        match self {
            TensorType::Float(_) => 1,
            TensorType::Blocks(codec) => codec.block_values,
        }
    }

    pub(super) fn block_bytes(self) -> usize {
        match self {
            TensorType::Float(float) => float.bytes(),
            TensorType::Blocks(codec) => codec.block_bytes,
        }
    }

    pub(super) fn storage(self, data: Region) -> Storage {
        match self {
            TensorType::Float(float) => Storage::Float { float, data },
            TensorType::Blocks(codec) => Storage::Blocks { codec, data },
        }
    }
}

fn unread_name(code: u32) -> String {
    let known = UNREAD.iter().find(|(number, _)| *number == code);
    known.map_or_else(|| format!("number {code}"), |(_, name)| (*name).to_owned())
}
