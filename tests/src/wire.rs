//! Packet capture on the wires of a cluster whose nodes are network namespaces.

use crate::cluster::TestCluster;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Bytes of Ethernet, IPv4 and UDP headers.
const BEFORE_PAYLOAD: usize = 14 + 20 + 8;

/// What was on the wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapturedTraffic {
    /// Packets of the channel protocol that are not encrypted (of version 6).
    pub clear: u64,
    /// Encrypted packets of it (of version 7).
    pub encrypted: u64,
    /// Packets of any kind in which the words looked for appear.
    pub with_words: u64,
}

/// A capture that runs.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<CapturedTraffic>,
}

impl Capture {
    /// Starts to look for `words` at all that passes the switch of the cluster.
    ///
    /// # Panics
    /// When the cluster has no switch, or looking at packets is not permitted.
    #[track_caller]
    pub fn start(cluster: &TestCluster, words: &[u8]) -> Self {
        let namespace = format!("/run/netns/kumi-{}-sw", cluster.name());
        let (stop, words) = (Arc::new(AtomicBool::new(false)), words.to_vec());
        let (ready, started) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        // Entering a namespace concerns the thread only.
        let thread = std::thread::spawn(move || {
            let file = File::open(&namespace).expect("the switch's namespace");
            setns(file, CloneFlags::CLONE_NEWNET).expect("setns is permitted");
            let everything = SockProtocol::EthAll;
            let flags = SockFlag::SOCK_CLOEXEC;
            let tap = socket(AddressFamily::Packet, SockType::Raw, flags, everything);
            let tap = tap.expect("a packet socket");
            setsockopt(&tap, sockopt::ReceiveTimeout, &TimeVal::milliseconds(50)).expect("timeout");
            setsockopt(&tap, sockopt::RcvBuf, &(8 << 20)).expect("buffer");
            ready.send(()).expect("the test waits");
            let mut seen = CapturedTraffic::default();
            let mut frame = vec![0; 1 << 17];
            loop {
                match recv(tap.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                    Ok(length) => seen.look(&frame[..length], &words),
                    // Nothing within the timeout: what was sent before the stop has been seen.
                    Err(nix::errno::Errno::EAGAIN) if stopped.load(Ordering::Acquire) => break,
                    Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => {}
                    Err(error) => panic!("the packet socket failed: {error}"),
                }
            }
            seen
        });
        started.recv().expect("the capture starts");
        Self { stop, thread }
    }

    /// Ends it.
    ///
    /// # Panics
    /// When the capture failed.
    #[track_caller]
    pub fn finish(self) -> CapturedTraffic {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the capture did not fail")
    }
}

impl CapturedTraffic {
    fn look(&mut self, frame: &[u8], words: &[u8]) {
        self.with_words += u64::from(frame.windows(words.len()).any(|part| part == words));
        let Some(payload) = frame.get(BEFORE_PAYLOAD..) else { return };
        // UDP is protocol 17; the header begins with a checksum or counter, then `K` `U`, then the version.
        if frame[14 + 9] == 17 && payload.get(4..6) == Some(b"KU") {
            match payload.get(6) {
                Some(6) => self.clear += 1,
                Some(7) => self.encrypted += 1,
                _ => {}
            }
        }
    }
}
