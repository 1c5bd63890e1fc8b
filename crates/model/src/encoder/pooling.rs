//! From the vectors of a text's tokens to one for the text.

/// Which vector stands for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens'.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
    /// The largest value of each dimension.
    Max,
}

impl Pooling {
    /// One vector out of `[token][width]`.
    pub fn apply(self, rows: &[f32], width: usize) -> Vec<f32> {
        match self {
            Self::First => rows[..width].to_vec(),
            Self::Last => rows[rows.len() - width..].to_vec(),
            Self::Mean => {
                let mut mean = fold(rows, width, |sum, value| sum + value);
                let count = (rows.len() / width) as f32;
                for value in &mut mean {
                    *value /= count;
                }
                mean
            }
            Self::Max => fold(rows, width, f32::max),
        }
    }
}

/// All rows folded into one, first to last.
fn fold(rows: &[f32], width: usize, join: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let mut out = rows[..width].to_vec();
    for row in rows[width..].chunks_exact(width) {
        for (out, value) in out.iter_mut().zip(row) {
            *out = join(*out, *value);
        }
    }
    out
}

/// Brings a vector to length 1; one of zeros stays.
pub fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if length > 0.0 {
        let inverse = (1.0 / length) as f32;
        for x in vector {
            *x *= inverse;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "small whole numbers are exact")]
    fn each_pooling_takes_what_it_says() {
        let rows = [1.0, 8.0, 3.0, 2.0, 5.0, -4.0];
        assert_eq!(Pooling::Mean.apply(&rows, 2), [3.0, 2.0]);
        assert_eq!(Pooling::First.apply(&rows, 2), [1.0, 8.0]);
        assert_eq!(Pooling::Last.apply(&rows, 2), [5.0, -4.0]);
        assert_eq!(Pooling::Max.apply(&rows, 2), [5.0, 8.0]);
    }

    #[test]
    fn a_normalised_vector_has_length_one_and_zeros_stay() {
        let mut vector = vec![3.0, 4.0];
        normalise(&mut vector);
        assert!((vector[0] - 0.6).abs() < 1e-7 && (vector[1] - 0.8).abs() < 1e-7);
        let mut zeros = vec![0.0; 3];
        normalise(&mut zeros);
        assert!(zeros.iter().all(|&x| x == 0.0));
    }
}
