//! What ranks write to the server of their job: two ranks of a node, one of which has begun with each version of PMI. Nothing
//! that they write makes the server panic, and what is kept of it is bounded. `core/pmi/tests/fuzzed.rs` runs the same with
//! inputs from a seed, so it needs no fuzzer.

use kumi_pmi::frame::FrameBuffer;
use kumi_pmi::message::{FromServer, ServedJob, ServedNode};
use kumi_pmi::peer::PeerMessage;
use kumi_pmi::pmi::{Action, Ranks};

fn job() -> ServedJob {
    ServedJob {
        job: 7,
        ranks: 2,
        nodes: vec![ServedNode { name: "n".into(), first: 0, count: 2 }],
        place: 0,
        uid: 0,
        gid: 0,
        folder: String::new(),
        pmix: false,
        pmi: vec![0, 1],
    }
}

/// Carries out what the ranks want. Returns how much that was.
fn serve(ranks: &mut Ranks) -> usize {
    let mut count = 0;
    while let Some(action) = ranks.poll_action() {
        count += 1;
        assert!(count < 100_000, "the server does not come to rest");
        match action {
            Action::Send(local, text) => assert!(local < 2 && text.len() < 1 << 20),
            Action::Exchange(_, data) => ranks.exchanged(&[data]),
            Action::Publish(local, ..) => ranks.published(local, Ok(())),
            Action::Lookup(local, name) => ranks.looked_up(local, Some(name)),
            Action::Unpublish(local, _) => ranks.unpublished(local, Err("x".into())),
            Action::Broken(_) => {}
            Action::Joined(local)
            | Action::Finalized(local)
            | Action::Aborted(local, ..)
            | Action::SpawnRefused(local)
            | Action::Close(local, _) => assert!(local < 2),
        }
    }
    count
}

/// Pieces of the input, each after its rank and length, as what ranks write, as frames, and as messages of other servers.
/// Returns how many actions that led to.
pub fn ranks(input: &[u8]) -> usize {
    let mut ranks = Ranks::new(&job());
    for (local, version) in [(0, 1), (1, 2)] {
        let begin = format!("cmd=init pmi_version={version} pmi_subversion=0\n");
        ranks.received(local, begin.as_bytes());
    }
    let mut actions = serve(&mut ranks);
    let mut frames = FrameBuffer::default();
    let mut trusted = true;
    let mut rest = input;
    while let [kind, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        ranks.received(usize::from(kind % 2), bytes);
        actions += serve(&mut ranks);
        drop(PeerMessage::decode(bytes));
        if trusted {
            frames.extend(bytes);
            trusted = frames.take::<FromServer>().is_ok();
        }
    }
    actions
}
