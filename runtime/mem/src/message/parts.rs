//! Parts in which long data leaves for a rank of another node.
//!
//! A part is a run of packets that one system call puts on the wire. It waits until the send ring has
//! room for all of it. Filling every slot as soon as an ack frees it would make ever shorter runs, with
//! a call and an ack for each.

use kumi_net::{Guard, SendRoom};
use kumi_proto::frame::PUT_BYTES;

use crate::engine::Engine;

/// How many of the frames that carry so many bytes to queue and then put on the wire together. To a
/// rank of this node all of them, otherwise the next part. `None` while there is no room for that.
pub(crate) fn frames_to_queue(
    guard: &Guard<'_, Engine>,
    to: u32,
    bytes: usize,
    most: usize,
) -> Option<usize> {
    let frames = bytes.div_ceil(most - PUT_BYTES).max(1);
    match guard.room(to) {
        Some(room) => next_part(frames, room),
        None => Some(frames),
    }
}

/// How many frames to queue: what fills the run that waits, or else the first of the even parts into which `frames` fall
/// when none is longer than a run. `None` if there is no room for that.
fn next_part(frames: usize, room: SendRoom) -> Option<usize> {
    let part = match room.missing {
        Some(missing) => frames.min(missing),
        None => frames.div_ceil(frames.div_ceil(room.run)),
    };
    (room.frames >= part).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::{SendRoom, next_part};

    fn room(frames: usize) -> SendRoom {
        SendRoom { frames, run: 44, missing: None }
    }

    #[test]
    fn long_data_leaves_in_even_parts_that_wait_for_room() {
        assert_eq!(next_part(1, room(1)), Some(1));
        assert_eq!(next_part(1, room(0)), None);
        assert_eq!(next_part(44, room(128)), Some(44));
        assert_eq!(next_part(47, room(128)), Some(24), "not 44 and a short run");
        assert_eq!(next_part(47, room(23)), None, "a short run is not worth it");
        assert_eq!(next_part(23, room(23)), Some(23));
        // Part for part, nothing is left out and no part is longer than a run.
        let (mut rest, mut parts) = (739, 0);
        while rest > 0 {
            let part = next_part(rest, room(64)).expect("room");
            assert!((1..=44).contains(&part));
            (rest, parts) = (rest - part, parts + 1);
        }
        assert_eq!(parts, 739usize.div_ceil(44));
    }

    #[test]
    fn in_a_stream_of_puts_runs_are_filled() {
        let room = |missing| SendRoom { missing: Some(missing), ..room(128) };
        assert_eq!(next_part(47, room(41)), Some(41), "behind three of the put before");
        assert_eq!(next_part(6, room(44)), Some(6), "which wait for the next put");
        assert_eq!(next_part(47, SendRoom { frames: 40, ..room(41) }), None);
    }
}
