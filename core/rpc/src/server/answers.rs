//! Answers that are one frame, and what a server says of a stream meanwhile.

use super::{Server, Stream};
use crate::MOST_ANSWER;
use crate::codec::Encode;
use crate::frame::FrameKind;
use crate::message::{self, Code, Failure};

impl Server {
    /// Sends what the routine of a call has printed, to a client that listens. `is_cut`: it has printed more than this.
    pub fn printed(&mut self, stream: u32, bytes: &[u8], is_cut: bool) {
        if !self.streams.contains_key(&stream) {
            return;
        }
        let pieces = bytes.chunks(message::MOST_OUTPUT);
        let last = pieces.len().saturating_sub(1);
        for (number, piece) in pieces.enumerate() {
            self.put(FrameKind::Output, stream, (is_cut && number == last, piece));
        }
    }

    /// Confirms that an object exists, unless it has ended meanwhile.
    pub fn created(&mut self, stream: u32) {
        if matches!(self.streams.get(&stream), Some(Stream::Object)) {
            self.put(FrameKind::Created, stream, ());
        }
    }

    /// Ends a stream with an answer.
    fn answer(&mut self, stream: u32, kind: FrameKind, body: impl Encode) {
        self.streams.remove(&stream);
        self.put(kind, stream, body);
    }

    /// Ends a stream whose answer has so many bytes that no frame takes it.
    fn too_long(&mut self, stream: u32, bytes: usize, text: &str) {
        self.fail(stream, &Failure::new(Code::TooLarge, bytes as i64, text));
    }

    /// Answers with a description, or with a failure if it is too long for a frame.
    pub fn describe(&mut self, stream: u32, hash: u64, json: &str) {
        if json.len() + 8 > MOST_ANSWER {
            return self.too_long(stream, json.len(), "the description is too long to be sent");
        }
        self.answer(stream, FrameKind::Description, (hash, json.as_bytes()));
    }

    /// Answers with as many names as fit.
    pub fn names<'a>(&mut self, stream: u32, names: impl IntoIterator<Item = &'a str>) {
        self.answer(stream, FrameKind::Names, &message::fitting(names)[..]);
    }

    /// Answers with a voucher.
    pub fn send_voucher(&mut self, stream: u32, voucher: &str) {
        self.answer(stream, FrameKind::Voucher, voucher.as_bytes());
    }

    /// Answers with logs of calls as JSON, or with a failure if they are too long for a frame.
    pub fn logs(&mut self, stream: u32, json: &str) {
        if json.len() > MOST_ANSWER {
            let text = "the logs are too long to be sent; ask for fewer calls";
            return self.too_long(stream, json.len(), text);
        }
        self.answer(stream, FrameKind::State, json.as_bytes());
    }
}
