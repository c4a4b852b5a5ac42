//! The fuzz target's harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/input.rs"]
mod input;
#[path = "../../../fuzz/pmi.rs"]
mod pmi;

use input::Numbers;

/// Parts of what ranks write.
const WORDS: [&str; 14] = [
    "cmd=put kvsname=k key=a value=",
    "cmd=get kvsname=k key=a\n",
    "cmd=barrier_in\n",
    "cmd=lookup_name service=s\n",
    "mcmd=spawn\n",
    "endcmd\n",
    "cmd=finalize\n",
    "cmd=",
    "\n",
    "    14cmd=kvs-fence;",
    "    20cmd=kvs-get;key=abcd;",
    "    19cmd=job-getid;x=;;y;",
    "999999",
    ";",
];

#[test]
fn whatever_ranks_write() {
    let mut numbers = Numbers(1);
    let mut actions = 0;
    let inputs = if cfg!(miri) { 20 } else { 4_000 };
    for _ in 0..inputs {
        let mut input = Vec::new();
        for _ in 0..numbers.next() % 30 {
            let word = WORDS[numbers.next() as usize % WORDS.len()];
            let mut piece = word.as_bytes().to_vec();
            if numbers.next().is_multiple_of(4) {
                let at = numbers.next() as usize % piece.len();
                piece[at] = numbers.next() as u8;
            }
            input.extend([numbers.next() as u8, piece.len() as u8]);
            input.extend(piece);
        }
        actions += pmi::ranks(&input);
    }
    assert!(actions > inputs * 6, "only {actions} actions");
}
