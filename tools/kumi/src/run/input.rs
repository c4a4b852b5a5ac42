//! Reader of standard input, in a thread.
//!
//! Another way to read a terminal would change it for all processes that share it.

use nix::unistd::{getpgrp, tcgetpgrp};
use std::io::{self, IsTerminal, Read};
use std::time::Duration;
use tokio::sync::mpsc;

/// Largest piece, in bytes.
const PIECE: usize = 64 << 10;
/// Number of pieces read ahead of the cluster.
const AHEAD: usize = 2;
/// Interval at which a command in the background checks whether it is in the foreground again.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);

/// Starts reading, at a word of `begin` if one is to be waited for. An empty piece marks the end; the channel closes after it.
pub fn start(begin: Option<std::sync::mpsc::Receiver<()>>) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        // Without the word the session is over.
        if begin.is_none_or(|begin| begin.recv().is_ok()) {
            read_all(&sender);
        }
    })?;
    Ok(receiver)
}

fn read_all(sender: &mpsc::Sender<Vec<u8>>) {
    let mut stdin = io::stdin().lock();
    let terminal = stdin.is_terminal();
    let mut piece = vec![0; PIECE];
    loop {
        // Reading the terminal from the background would stop the whole command.
        while terminal && tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp()) {
            std::thread::sleep(BACKGROUND_PAUSE);
        }
        let data = match stdin.read(&mut piece) {
            Ok(count) => piece[..count].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A closed or unreadable standard input counts as empty.
            Err(_) => Vec::new(),
        };
        let end = data.is_empty();
        if sender.blocking_send(data).is_err() || end {
            return;
        }
    }
}
