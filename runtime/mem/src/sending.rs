//! Frames of puts and messages: they are queued as there is room, in the order of their calls.

use kumi_net::{CopySource, Guard, Wait};
use kumi_net::{Description, WaitKind};
use kumi_proto::frame::{Frame, pad};

use crate::context::{Context, ContextTurn};
use crate::engine::Engine;
use crate::error::Error;
use crate::message::parts::frames_to_queue;
use crate::window::completion::CountedPut;
use crate::window::zero_copy::ScopedLoan;

/// Data on their way, of which a part is queued already.
struct DataFrames<S, F> {
    data: S,
    /// Makes the frame that begins after so many bytes and is at most so long.
    frame: F,
    /// Bytes queued.
    done: usize,
    /// The first frame is queued.
    begun: bool,
}

impl<'d, S: CopySource, F: Fn(usize, usize) -> Frame<'d, S>> DataFrames<S, F> {
    fn new(data: S, frame: F) -> Self {
        Self { data, frame, done: 0, begun: false }
    }

    /// The next frame; none if there is none left. Data of no bytes have one.
    fn next(&self, most: usize) -> Option<Frame<'d, S>> {
        self.is_left().then(|| (self.frame)(most, self.done))
    }

    fn is_left(&self) -> bool {
        !self.begun || self.done < self.data.len()
    }

    fn queued(&mut self, part: S) {
        (self.begun, self.done) = (true, self.done + part.len());
    }

    /// Queues at most `batch` frames as copies, to a rank of another node.
    fn queue_run(
        &mut self,
        (guard, to): (&mut Guard<'_, Engine>, u32),
        batch: usize,
        most: usize,
    ) -> Result<usize, Error> {
        let queued = guard.send_remote_run(to, batch, |room| {
            let frame = self.next(most)?;
            self.queued(frame.data());
            Some(frame.write(room))
        })?;
        Ok(queued)
    }

    /// Queues at most `batch` frames one by one. If `lends`, they leave the data where it is.
    ///
    /// # Safety
    /// If `lends`, the memory of the data stays until `Channel::take_back` was called for it.
    unsafe fn queue_each(
        &mut self,
        (guard, to): (&mut Guard<'_, Engine>, u32),
        batch: usize,
        most: usize,
        lends: bool,
    ) -> Result<usize, Error> {
        for queued in 0..batch {
            let Some(frame) = self.next(most) else { return Ok(queued) };
            let (header, part) = (frame.header(), frame.data());
            let taken = match lends {
                // SAFETY: the frame's data is of the data, of which the caller promises it.
                true => unsafe { guard.send_lent(to, &header, part)? },
                false => guard.send_parts(to, &[&header], &[part])?,
            };
            if !taken {
                return Ok(queued);
            }
            self.queued(part);
        }
        Ok(batch)
    }
}

impl Context {
    /// Queues the frames that carry `data` to another rank. `frame(most, done)` makes the frame that
    /// begins after `done` bytes and is at most `most` bytes long. At least one is sent.
    ///
    /// `tells`: earlier refused puts to this rank may be reported instead, but only before the first
    /// frame, since half a message or put is useless.
    pub(crate) fn send_frames<'d, S: CopySource>(
        &self,
        to: u32,
        data: S,
        tells: bool,
        counted: Option<CountedPut>,
        frame: impl Fn(usize, usize) -> Frame<'d, S>,
    ) -> Result<(), Error> {
        let lent = ScopedLoan::new(self, to, data);
        // SAFETY: lent data is taken back before this function ends, even by an error or a panic.
        unsafe { self.send_frames_lent(to, data, tells, lent.is_some(), counted, frame) }
    }

    /// The same; if `lends`, frames to another node may leave `data` where it is.
    ///
    /// # Safety
    /// If `lends`, the memory of `data` stays until `Channel::take_back` was called for it.
    pub(crate) unsafe fn send_frames_lent<'d, S: CopySource>(
        &self,
        to: u32,
        data: S,
        tells: bool,
        lends: bool,
        mut counted: Option<CountedPut>,
        frame: impl Fn(usize, usize) -> Frame<'d, S>,
    ) -> Result<(), Error> {
        let remote = !self.same_node(to);
        let tells = self.note_frames(to, remote) && tells;
        let mut frames = DataFrames::new(data, frame);
        let mut turn = ContextTurn::new(self, to);
        let _described = Description::of(WaitKind::SendSpace, Some(to)).enter();
        self.drive(Wait::Room, |guard| {
            if let Some(put) = counted.take() {
                // With its place in the queue: answers come in the order of sending.
                put.begin(guard.handler(), to);
            }
            if !turn.has_come(guard) {
                return Ok(None);
            }
            if !frames.begun {
                self.before_frames(guard, to, tells, data.len())?;
            }
            let most = guard.max_frame(to);
            while frames.is_left() {
                let Some(batch) = frames_to_queue(guard, to, data.len() - frames.done, most) else {
                    return turn.hold(guard);
                };
                let queued = if remote && !lends {
                    frames.queue_run((guard, to), batch, most)?
                } else {
                    // SAFETY: the caller's promise.
                    unsafe { frames.queue_each((guard, to), batch, most, lends && remote)? }
                };
                if queued < batch && frames.is_left() {
                    guard.transmit()?;
                    return turn.hold(guard);
                }
                guard.transmit_soon(to)?;
            }
            turn.over(guard);
            if remote {
                self.puts_to(to);
            }
            Ok(Some(()))
        })
    }

    /// Before the first frame of so many bytes: tells of refused puts if it may, and lets a shorter frame that waits leave in
    /// the run of these.
    fn before_frames(
        &self,
        guard: &mut Guard<'_, Engine>,
        to: u32,
        tells: bool,
        bytes: usize,
    ) -> Result<(), Error> {
        if tells {
            self.check_refused(guard, to)?;
        }
        let most = guard.max_frame(to);
        if bytes >= most {
            guard.pad_last(to, most, pad);
        }
        Ok(())
    }

    /// Frames go to this rank; whether it may have refused some.
    fn note_frames(&self, to: u32, remote: bool) -> bool {
        if remote {
            self.puts_to(to);
        }
        // A rank of this node: only if it has been put to by frames.
        remote || self.unconfirmed(to)
    }
}
