use std::sync::Arc;

use super::readers::Position;
use super::state::Process;

/// An attached reader, until this is dropped.
#[derive(Debug)]
pub struct Reader {
    process: Arc<Process>,
    number: u64,
}

impl Reader {
    /// Attaches a reader that has everything before `from`.
    pub fn new(process: &Arc<Process>, from: Position) -> Self {
        let number = process.readers.as_ref().map_or(0, |readers| readers.enter(from));
        Self { process: Arc::clone(process), number }
    }

    /// Notes that the reader has taken everything before `position`.
    pub fn took(&self, position: Position) {
        if let Some(readers) = &self.process.readers {
            readers.took(self.number, position);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(readers) = &self.process.readers {
            readers.leave(self.number);
        }
    }
}
