//! The thread that starts the processes of jobs.
//!
//! The kernel makes a process in its control group under a lock of the whole machine, and may take seconds. So the daemon's main
//! loop does not do that. One thread does it for all jobs, as long as the daemon lives: the kernel ties ranks to the thread that
//! made them, and a thread that ends would take its ranks with it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::process::{OwnProcess, Process, SpawnRequest};

/// A process that somebody waits for.
#[derive(Debug)]
struct Order {
    request: SpawnRequest,
    answer: oneshot::Sender<io::Result<OwnProcess>>,
}

/// The daemon's handle on the thread, which ends with it.
#[derive(Debug)]
pub struct ProcessStarter(Sender<Order>);

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the thread that starts processes is gone")
}

impl ProcessStarter {
    /// Starts the thread, from the event loop that is to wait for the processes.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn new() -> io::Result<Self> {
        let (orders, inbox) = channel();
        let events = Handle::try_current().map_err(io::Error::other)?;
        let builder = std::thread::Builder::new().name("starter".to_owned());
        builder.spawn(move || serve(&inbox, &events))?;
        Ok(Self(orders))
    }

    /// Starts a process when it is its turn. Whoever asks keeps its descriptors open until there is an answer.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) async fn start(&self, request: SpawnRequest) -> io::Result<Process> {
        let (answer, started) = oneshot::channel();
        self.0.send(Order { request, answer }).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?.map(Process::from)
    }
}

/// Starts what is asked for until nobody can ask any more.
fn serve(inbox: &Receiver<Order>, events: &Handle) {
    let _guard = events.enter();
    for Order { request, answer } in inbox {
        if let Err(Ok(unwanted)) = answer.send(request.start()) {
            // The daemon ends, and so does what it has started.
            Process::from(unwanted).kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::RankStatus;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn shell(null: &File, script: &str) -> SpawnRequest {
        SpawnRequest {
            executable: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            streams: [null.as_raw_fd(); 3],
            inherited: Vec::new(),
            session: false,
            group: None,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn processes_are_started_by_one_thread_that_goes_on() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let starter = ProcessStarter::new().unwrap();
        let mut started = Vec::new();
        for code in 3..6 {
            started.push(starter.start(shell(&null, &format!("exit {code}"))).await.unwrap());
        }
        for (code, process) in (3..6).zip(started) {
            assert_eq!(process.wait().await.unwrap(), RankStatus::Exited(code));
        }
        let missing = SpawnRequest { executable: "/no/such/file".into(), ..shell(&null, "") };
        let error = starter.start(missing).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_nobody_waits_for_any_more_is_killed() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let starter = ProcessStarter::new().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut sleeper = shell(&null, "exec sleep 1000");
        sleeper.inherited = vec![writer.as_raw_fd()];
        let (answer, started) = oneshot::channel();
        drop(started);
        starter.0.send(Order { request: sleeper, answer }).unwrap();
        // Orders are obeyed one after the other.
        let next = starter.start(shell(&null, "exit 0")).await.unwrap();
        drop(writer);
        // The pipe ends when the sleeper does.
        let end = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut all)
        });
        assert_eq!(end.await.unwrap().unwrap(), 0);
        assert_eq!(next.wait().await.unwrap(), RankStatus::Exited(0));
    }
}
