//! Transfer of file arguments into the call's folder, and of result files from it.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use kumi_idl::Interface;
use kumi_rpc::{ArrayPosition, ArraySize, Failure, SendPiece, Value};

use super::{CallStage, Connection};
use crate::native::{self, Source};
use crate::scratch::{CallFiles, OutgoingFile};
use crate::values::GivenValues;

/// Files that go back, by stream.
pub type FilesByStream = HashMap<u32, Vec<OutgoingFile>>;

/// Bytes of a file read at once.
const READ: usize = 64 << 10;

/// The files that are to arrive.
pub fn coming(given: &GivenValues) -> impl Iterator<Item = ArraySize> {
    let sizes = (0..).zip(&given.files);
    sizes.filter_map(|(argument, bytes)| Some(ArraySize { argument, bytes: (*bytes)? }))
}

impl Connection {
    /// Reserves space and makes the folder for the files of a call, if it has any.
    ///
    /// # Errors
    /// The files are too long, or the disk does not take them.
    pub(super) fn files_for(
        &self,
        interface: &Interface,
        given: &mut GivenValues,
    ) -> Result<Option<CallFiles>, Failure> {
        let mut scratch = self.shared.scratch.borrow_mut();
        let owner = self.caller.owner();
        CallFiles::new(&mut scratch, owner, interface, given, self.shared.config.file_bytes)
    }

    /// Writes arriving bytes to their file. False: they do not belong to a file.
    pub(super) fn put_to_file(&mut self, place: ArrayPosition, from: usize, count: usize) -> bool {
        let Some(CallStage::Receiving(job, _)) = self.calls.get(&place.stream) else {
            return false;
        };
        let Some(files) = job.files.as_ref().filter(|files| files.takes(place.argument)) else {
            return false;
        };
        let bytes = &self.input[from..from + count];
        if let Err(failure) = files.write(place.argument, place.offset, bytes) {
            // The server skips the rest of the call's input; its folder goes with the call.
            self.give_up(place.stream, &failure);
        }
        true
    }

    /// Adds files to a result: their lengths to the values, their bytes to the arrays.
    pub(super) fn send_files(
        &mut self,
        stream: u32,
        files: Vec<OutgoingFile>,
        values: &mut Vec<(u16, Value)>,
        sizes: &mut Vec<ArraySize>,
    ) {
        for file in &files {
            values.push((file.size.argument, Value::FileLength(file.size.bytes)));
            sizes.push(file.size);
        }
        values.sort_by_key(|(parameter, _)| *parameter);
        if !files.is_empty() {
            self.outgoing.insert(stream, files);
        }
    }

    /// Writes bytes of a file if they are next. `None`: something else is next.
    pub(super) fn write_file(&mut self, socket: BorrowedFd<'_>) -> Option<io::Result<usize>> {
        let outgoing = &self.outgoing;
        let next = self.rpc.send_queue().pieces().next();
        let Some(SendPiece::Data(place, length)) = next else { return None };
        let file = file_of(outgoing, place)?;
        self.read.resize(length.min(READ), 0);
        let read = match file.file.read_at(&mut self.read, place.offset) {
            // The file has become shorter than announced.
            Ok(0) => return Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let piece = std::iter::once(Source::Bytes(&self.read[..read]));
        Some(match &mut self.secured {
            None => native::write(socket, piece),
            Some(secured) => secured.write(socket, piece),
        })
    }
}

/// The file that these bytes belong to.
pub fn file_of(outgoing: &FilesByStream, place: ArrayPosition) -> Option<&OutgoingFile> {
    let files = outgoing.get(&place.stream)?;
    files.iter().find(|file| file.size.argument == place.argument)
}
