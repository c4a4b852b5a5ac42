//! Transfer of the program to a head that asks for it.

use super::{ConnectionEnd, Session, Start, sent};
use crate::error::Error;
use kumi_control::message::{ClientRequest, ContentHash};
use kumi_node::client::Requests;
use kumi_node::frame::CHUNK;
use std::io::Read;

impl Session {
    pub(super) async fn send_program(
        &mut self,
        hash: ContentHash,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        let Start::Submit(request) = &self.start else { return Ok(None) };
        let program = &request.program;
        let path = std::path::Path::new(&program.path);
        if program.hash != hash {
            return Ok(None);
        }
        let failed = |source| Error::File { doing: "read", path: path.to_owned(), source };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let total = program.size;
        let mut offset = 0;
        while offset < total {
            let mut data = vec![0; CHUNK.min(usize::try_from(total - offset).unwrap_or(CHUNK))];
            file.read_exact(&mut data).map_err(failed)?;
            let length = data.len() as u64;
            let chunk = ClientRequest::ProgramChunk { hash, offset, total, data };
            if !sent(requests.send(&chunk).await)? {
                return Ok(Some(ConnectionEnd::Lost));
            }
            offset += length;
        }
        Ok(None)
    }
}
