//! Where vectors go: JSON lines, or a `NumPy` array.
//!
//! A `NumPy` file says how many rows it has before the first; its header is written with room to spare and filled in at the
//! end.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use ropeway_embed::Embedding;

use crate::failure::Failure;
use crate::output::Output;

/// An open output.
pub enum Sink<'a> {
    Lines { out: Box<dyn Write + 'a>, next: u64 },
    Array(Npy),
}

impl<'a> Sink<'a> {
    /// Opens what the path's ending asks for.
    pub fn open(path: Option<&Path>, stdout: &'a mut Output) -> Result<Sink<'a>, Failure> {
        let Some(path) = path else { return Ok(Sink::Lines { out: Box::new(stdout), next: 0 }) };
        let unwritable = |error: io::Error| {
            let message = format!("could not write {}: {error}", path.display());
            Failure::new(message, "check the folder and its permissions")
        };
        let file = BufWriter::new(File::create(path).map_err(unwritable)?);
        if path.extension().is_some_and(|extension| extension == "npy") {
            return Ok(Sink::Array(Npy { file, rows: 0, columns: 0 }));
        }
        Ok(Sink::Lines { out: Box::new(file), next: 0 })
    }

    /// Adds one vector.
    pub fn put(&mut self, embedding: &Embedding) -> io::Result<()> {
        match self {
            Sink::Lines { out, next } => {
                let line = serde_json::json!({
                    "index": next, "embedding": embedding.vector, "tokens": embedding.tokens,
                    "truncated": embedding.truncated,
                });
                *next += 1;
                writeln!(out, "{line}")
            }
            Sink::Array(npy) => npy.put(&embedding.vector),
        }
    }

    /// Writes what is still missing.
    pub fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Lines { mut out, .. } => out.flush()?,
            Sink::Array(npy) => npy.finish()?,
        }
        Ok(())
    }
}

/// A `NumPy` file of 32-bit floats, `[row][column]`.
pub struct Npy {
    file: BufWriter<File>,
    rows: u64,
    columns: usize,
}

/// Bytes of the header: a multiple of 64, as the format wants it, with room for any number of rows.
const HEADER: usize = 128;

impl Npy {
    fn put(&mut self, vector: &[f32]) -> io::Result<()> {
        if self.rows == 0 {
            self.columns = vector.len();
            self.file.write_all(&self.header())?;
        }
        self.rows += 1;
        vector.iter().try_for_each(|value| self.file.write_all(&value.to_le_bytes()))
    }

    fn finish(mut self) -> io::Result<()> {
        let header = self.header();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)?;
        self.file.flush()
    }

    fn header(&self) -> [u8; HEADER] {
        let mut header = [b' '; HEADER];
        header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
        header[8..10].copy_from_slice(&(HEADER as u16 - 10).to_le_bytes());
        let about = format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
            self.rows, self.columns
        );
        header[10..10 + about.len()].copy_from_slice(about.as_bytes());
        header[HEADER - 1] = b'\n';
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_says_its_shape_in_front() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.npy");
        let mut stdout = Output::stdout();
        let mut sink = Sink::open(Some(&path), &mut stdout).expect("a file");
        for row in 0..3 {
            let vector = vec![row as f32; 2];
            sink.put(&Embedding { vector, tokens: 1, truncated: false }).expect("written");
        }
        sink.finish().expect("written");
        let bytes = std::fs::read(path).expect("a file");
        assert_eq!(bytes.len(), HEADER + 3 * 2 * 4);
        let header = String::from_utf8_lossy(&bytes[10..HEADER]);
        assert!(header.contains("'shape': (3, 2)"), "{header}");
        assert_eq!(bytes[HEADER + 16..HEADER + 20], 2f32.to_le_bytes());
    }
}
