//! Standard output for results: buffered, and as text or as JSON.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

/// Where a command writes its result.
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// The program's standard output.
    pub fn stdout() -> Output {
        Output(BufWriter::new(io::stdout().lock()))
    }

    /// Writes a value as one indented JSON document.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.0, value)?;
        writeln!(self.0)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A line beside the result, on standard error. Nobody reading it is no reason to stop.
pub fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
