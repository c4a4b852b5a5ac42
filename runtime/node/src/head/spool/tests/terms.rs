//! Terms of heads on several machines: what another one has had of the output is marked here.

use super::*;
use crate::head::state::TermOutput;

/// Heads on other machines had more: what is not here is marked once, for those who have not seen it.
#[tokio::test(flavor = "current_thread")]
async fn output_of_another_machines_head_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    spools.begin_term(TermOutput { number: 1, ..TermOutput::default() });
    put(&mut spools, 0, b"first");
    let first = all(&mut spools, 0, false).await;
    let begin = TERM + 14;
    assert_eq!(first, [output(0, b"first", begin), ClientReply::Done], "no mark");
    let [(job, written)] = spools.written(|_| true)[..] else { panic!("it is told") };
    assert_eq!((job, written.bytes, written.end), (JOB, 5, begin));
    assert_eq!((spools.written(|_| true), spools.written_by(JOB)), (Vec::new(), None), "once");
    put(&mut spools, 0, b"!");
    let Some((job, written)) = spools.written_by(JOB) else { panic!("it is told at its end") };
    assert_eq!((job, written.bytes), (JOB, 6));
    // Another machine, which has nothing of it.
    let other = tempfile::tempdir().unwrap();
    let mut spools = open(other.path(), quota());
    let written_end = written.end;
    let written = BTreeMap::from([(JOB, written)]);
    spools.begin_term(TermOutput { number: 2, written });
    let none = all(&mut spools, 0, false).await;
    assert_eq!(sums(&none).1, 6, "{none:?}");
    // The node can send from there on, and has sent three bytes more that nobody knows of.
    spools.keep(JOB, (0, Stream::Out), 9, b"next");
    let lost_by = async |spools: &mut Spools, offset| {
        let replies = all(spools, offset, false).await;
        assert!(
            replies
                .iter()
                .any(|reply| matches!(reply, ClientReply::Output { data, .. } if data == b"next"))
        );
        sums(&replies).1
    };
    assert_eq!(lost_by(&mut spools, 0).await, 9);
    assert_eq!(lost_by(&mut spools, written_end).await, 3, "who has seen the first six");
    assert_eq!(spools.spool(JOB).writer.not_kept(), 9);
}

/// The leader had more than the next one knows of, and nothing more comes of that stream.
#[tokio::test(flavor = "current_thread")]
async fn output_of_the_last_moment_before_a_takeover_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    let written = BTreeMap::from([(JOB, WrittenOutput { end: TERM + 100, bytes: 6 })]);
    spools.begin_term(TermOutput { number: 2, written });
    let (out, err) = ((0, Stream::Out), (0, Stream::Err));
    let lost = async |spools: &mut Spools| sums(&all(spools, 0, false).await);
    assert_eq!(lost(&mut spools).await, (0, 6));
    // By what the node says, nine were acknowledged: six are known to be missing.
    assert_eq!(not_kept(spools.keep(JOB, out, 5, b"")).0, 6);
    assert_eq!(not_kept(spools.keep(JOB, err, 4, b"")).0, 9);
    assert_eq!(lost(&mut spools).await, (0, 9));
    // It is told again, and counts once.
    assert!(news(spools.keep(JOB, err, 4, b"")).is_none());
    assert!(news(spools.keep(JOB, err, 4, b"on")).is_none());
    assert_eq!(lost(&mut spools).await, (2, 9));
    // Also by a head that is started again on this machine.
    let mut spools = open(dir.path(), quota());
    assert!(spools.streams(JOB).contains(&(0, Stream::Out, 5)));
    assert!(spools.streams(JOB).contains(&(0, Stream::Err, 6)));
}
