//! A head ends while the disk is full: what it had in memory is missing for those who look later.

use super::*;

#[tokio::test(flavor = "current_thread")]
async fn the_next_head_marks_what_a_full_disk_never_took() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    put(&mut spools, 0, b"one");
    spools.reserve.set_missing("a test");
    let (not_kept, _) = not_kept(put(&mut spools, 0, b"four"));
    spools.finish(JOB, Outcome::Success, not_kept);
    assert_eq!(sums(&all(&mut spools, 0, true).await), (7, 0), "it is in memory");
    drop(spools);
    for _ in 0..2 {
        let mut spools = open(dir.path(), quota());
        for _ in 0..2 {
            // As the job's record has it, for each who follows.
            spools.finish(JOB, Outcome::Success, not_kept);
            assert_eq!(sums(&all(&mut spools, 0, true).await), (3, 4));
        }
        assert!(spools.write_again().is_empty(), "the record has it");
    }
}
