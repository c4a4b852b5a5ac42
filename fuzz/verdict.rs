//! What a hostile node tells of a job's waits. Verdicts and explanations must stay within bounds and come to an end, and no
//! sentence may have characters that a terminal obeys. `core/verdict/tests/fuzzed.rs` runs the same with inputs from a seed.

use kumi_verdict::{CALL_BYTES, Explanation, Judge, MOST_LISTED, Ruling, Standing, Summary, Wait};

/// Nodes of the job.
const MEMBERS: [u8; 3] = [0, 1, 2];
/// Longest line of an explanation: a wait with three numbers, and the name of its call.
const LINE: usize = 160 + CALL_BYTES;

/// Checks an explanation of what was told.
fn check(total: Summary) {
    let listed = total.listed.len();
    let lines = |rank: &kumi_verdict::RankStanding| 1 + rank.waits.len() + rank.held.len();
    let most = total.listed.iter().map(lines).sum::<usize>() + listed + 2;
    let explanation = Explanation::new(total);
    assert!(explanation.listed.len() <= MOST_LISTED && explanation.causes.len() <= listed + 1);
    let text = explanation.to_string();
    assert!(text.lines().count() <= most, "{text}");
    // Lines of causes name 16 ranks at most, in some words each.
    assert!(text.lines().all(|line| line.len() <= LINE + 16 * 24), "{text}");
    assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{text:?}");
}

/// Tells the head's part what the input says: standings of nodes, each after a byte for its nodes and one for its length. Returns how many were taken.
pub fn standings(input: &[u8]) -> usize {
    let mut judge = Judge::default();
    let mut rest = input;
    let mut taken = 0;
    let mut last_round = 0;
    while let [nodes, length, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        let Ok((standing, _)) = postcard::take_from_bytes::<Standing>(bytes) else { continue };
        if let Standing::Settled(summary) = &standing {
            if !summary.is_sound() {
                continue;
            }
            check(summary.clone());
        }
        taken += 1;
        let from: Vec<u8> = MEMBERS.into_iter().filter(|node| nodes & (1 << node) != 0).collect();
        for ruling in judge.tell(&from, standing, &MEMBERS) {
            match ruling {
                Ruling::Confirm(round) => {
                    assert!(round > last_round, "rounds rise");
                    last_round = round;
                }
                Ruling::Stopped(total) => {
                    assert!(judge.is_stopped() && total.is_stopped());
                    check(total);
                }
                Ruling::Withdrawn => {}
            }
        }
    }
    taken
}

/// A wait in the words of its own rank.
pub fn wait(input: &[u8]) -> bool {
    let Ok((wait, _)) = postcard::take_from_bytes::<Wait>(input) else { return false };
    let text = wait.to_string();
    assert!(text.len() <= LINE && !text.chars().any(char::is_control), "{text:?}");
    true
}
