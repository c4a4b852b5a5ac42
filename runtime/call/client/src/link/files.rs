//! Transfer of file arguments and result files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use kumi_rpc::{ArrayPosition, ArraySize, Value, chunk_header, chunks};

use super::Link;
use crate::CallError;
use crate::native::Source;

/// Files that come back.
#[derive(Debug, Default)]
pub struct IncomingFiles {
    files: Vec<(u16, Arc<File>)>,
    /// Most bytes of a file.
    most: u64,
    failed: Option<String>,
}

impl IncomingFiles {
    /// Files by parameter, with the most bytes of one.
    pub fn new(files: Vec<(u16, Arc<File>)>, most: u64) -> IncomingFiles {
        IncomingFiles { files, most, failed: None }
    }

    /// Their parameters.
    pub fn parameters(&self) -> Vec<u16> {
        self.files.iter().map(|(parameter, _)| *parameter).collect()
    }

    /// Takes the lengths of the files from the head of the result. If a file is too long, no file is written,
    /// and this returns the reason.
    pub fn begin(&mut self, values: &[(u16, Value)]) -> Option<String> {
        let bytes = values.iter().filter_map(|(_, value)| match value {
            Value::FileLength(bytes) => Some(*bytes),
            _ => None,
        });
        let bytes = bytes.filter(|bytes| *bytes > self.most).max()?;
        self.failed = Some(format!(
            "a file of {bytes} bytes would come back, which is more than the {} that are taken; the client's limit of \
             files can be raised",
            self.most
        ));
        self.failed.clone()
    }

    /// Writes bytes if they belong to a file. After a failure it skips them.
    pub fn write(&mut self, place: ArrayPosition, bytes: &[u8]) {
        let file = self.files.iter().find(|(parameter, _)| *parameter == place.argument);
        if let (Some((_, file)), None) = (file, &self.failed)
            && let Err(error) = file.write_all_at(bytes, place.offset)
        {
            self.failed = Some(format!("a file that came back cannot be written: {error}"));
        }
    }

    /// Why a file could not be written.
    pub fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}

impl Link {
    /// Sends the files of a call until the server has answered.
    pub fn send_files(
        &self,
        stream: u32,
        files: &[(u16, File, u64)],
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let mut buffer = Vec::new();
        for (argument, file, bytes) in files {
            let size = ArraySize { argument: *argument, bytes: *bytes };
            for (argument, offset, length) in chunks(&[size]) {
                if self.answered(stream) {
                    return Ok(());
                }
                buffer.resize(length as usize, 0);
                file.read_exact_at(&mut buffer, offset).map_err(|error| {
                    CallError::File(format!("a file changed while it was sent: {error}"))
                })?;
                let header = chunk_header(stream, argument, length);
                self.put(&[Source::Bytes(&header), Source::Bytes(&buffer)], deadline, interrupted)?;
            }
        }
        Ok(())
    }
}
