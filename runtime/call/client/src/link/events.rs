//! Processing of the events of a server.

use std::time::Instant;

use kumi_rpc::ClientEvent;

use super::{Answer, HELLO, PendingStream, State};

impl PendingStream {
    /// Nothing is written to its memory any more.
    pub(super) fn give_back(&mut self) {
        self.targets.clear();
        self.called_targets.clear();
        (self.coming, self.granted) = (None, None);
    }
}

impl State {
    pub(super) fn take(&mut self, event: ClientEvent) {
        let (stream, answer) = match event {
            ClientEvent::Hello(hello) => match hello.version.clone() {
                Ok(_) => (HELLO, Ok(Answer::Hello(hello))),
                Err(failure) => (HELLO, Err(failure)),
            },
            ClientEvent::Description(stream, hash, json) => {
                (stream, Ok(Answer::Description(hash, json)))
            }
            ClientEvent::Names(stream, names) => (stream, Ok(Answer::Names(names))),
            ClientEvent::Result(stream, head) => {
                let Some(pending) = self.pending.get_mut(&stream) else { return };
                let Some(why) = pending.files.begin(&head.values) else {
                    pending.head = Some((head, Instant::now()));
                    return;
                };
                (stream, Ok(Answer::FileNotWritten(why)))
            }
            ClientEvent::Done(stream) => {
                let head = self.pending.get_mut(&stream).and_then(|pending| pending.head.take());
                let Some((head, at)) = head else { return };
                let pending = self.pending.get_mut(&stream);
                let (file, granted) =
                    pending.map_or((None, None), |it| (it.files.failed(), it.granted.take()));
                (stream, Ok(file.map_or(Answer::Done(head, at, granted), Answer::FileNotWritten)))
            }
            ClientEvent::Output(stream, bytes, is_cut) => {
                let pending = self.pending.get(&stream);
                if let Some(output) = pending.and_then(|pending| pending.output.as_ref()) {
                    output.add(&bytes, is_cut);
                }
                return;
            }
            ClientEvent::Failed(stream, failure) => (stream, Err(failure)),
            ClientEvent::Callback(stream, head) => return self.callback(stream, &head),
            ClientEvent::CallbackReady(stream) => return self.called(stream),
            ClientEvent::Placed(stream, placed) => (stream, Ok(Answer::Placed(placed))),
            ClientEvent::Closed(stream) => (stream, Ok(Answer::Closed)),
            ClientEvent::Created(stream) => (stream, Ok(Answer::Created)),
            ClientEvent::Voucher(stream, voucher) => (stream, Ok(Answer::Voucher(voucher))),
            ClientEvent::State(stream, json) => (stream, Ok(Answer::State(json))),
            ClientEvent::Ended(failure) => return self.lose(&failure.text),
            ClientEvent::Pong => return self.heartbeat.answered = true,
            // Handled before.
            ClientEvent::Granted(..) => return,
        };
        if let Some(pending) = self.pending.get_mut(&stream) {
            pending.answer = Some(answer);
            if pending.queued {
                self.ready.push_back(stream);
            }
            pending.give_back();
        }
    }
}
