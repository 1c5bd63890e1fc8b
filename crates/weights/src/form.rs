//! The number formats a tensor can be read in: what every checkpoint format is brought to.
//!
//! Plain data, no I/O. A form never says how the bytes lie in the file, only what [`crate::Tensor`] hands out.

/// How a tensor's values are represented, once its file format is peeled off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Plain floating point numbers.
    Float(FloatType),
    /// Small unsigned integers with a scale (and perhaps a minimum) per group.
    Affine(AffineForm),
}

/// A floating point type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single precision number.
    Bf16,
}

impl FloatType {
    /// Bytes one value takes in the file.
    pub const fn bytes(self) -> usize {
        match self {
            FloatType::F32 => 4,
            FloatType::F16 | FloatType::Bf16 => 2,
        }
    }
}

/// Grouped affine integers: `w[k] = scale[k / group] * quant[k] + min[k / group]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AffineForm {
    /// Width of a quant.
    pub bits: Bits,
    /// How many neighbouring values share a scale.
    pub group: Group,
    /// Where the minimum comes from.
    pub zero: Zero,
}

/// Width of a quant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Quants are 0..=15.
    Four,
    /// Quants are 0..=255.
    Eight,
}

impl Bits {
    /// The quant that means zero under [`Zero::Fixed`].
    pub const fn zero_point(self) -> u8 {
        match self {
            Bits::Four => 8,
            Bits::Eight => 128,
        }
    }
}

/// How many neighbouring values of a row share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// 16 values.
    Sixteen,
    /// 32 values.
    ThirtyTwo,
}

impl Group {
    /// The number of values in a group; never zero, so there is no `is_empty`.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> usize {
        match self {
            Group::Sixteen => 16,
            Group::ThirtyTwo => 32,
        }
    }
}

/// Where the minimum of a group comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zero {
    /// `min = -zero_point * scale`: the quants are signed integers shifted by [`Bits::zero_point`].
    Fixed,
    /// Each group stores its own minimum.
    Mins,
}

/// Where [`crate::Tensor::read_affine`] puts one row.
#[derive(Debug)]
pub struct AffineRow<'a> {
    /// `[cols]`, one quant per byte, also when they are four bits wide.
    pub quants: &'a mut [u8],
    /// `[cols / group]`.
    pub scales: &'a mut [f32],
    /// `[cols / group]`; under [`Zero::Fixed`] left untouched and may be empty.
    pub mins: &'a mut [f32],
}
