#![allow(dead_code)] // Each test uses a part of it.
//! An etcd for a test, in a temporary folder.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// An etcd process, ended when this is dropped.
pub struct Server {
    child: Option<Child>,
    client: SocketAddr,
    peer: SocketAddr,
    more: Vec<String>,
    folder: tempfile::TempDir,
}

/// Whether the command exists; tests are skipped without it.
pub fn is_there() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        kumi_skip::skip("etcd", "there is no command `etcd` (Debian package etcd-server)");
    }
    found
}

/// Whether the operator's command exists.
pub fn has_control() -> bool {
    let found = Command::new("etcdctl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !found {
        kumi_skip::skip("etcd", "there is no command `etcdctl` (Debian package etcd-client)");
    }
    found
}

/// Starts one.
pub fn started(more: &[&str]) -> Server {
    let mut server = Server {
        child: None,
        client: crate::grid::port(),
        peer: crate::grid::port(),
        more: more.iter().map(|one| (*one).to_owned()).collect(),
        folder: tempfile::tempdir().expect("a folder"),
    };
    server.start();
    server
}

impl Server {
    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    /// Starts it, perhaps again. It answers when this returns.
    pub fn start(&mut self) {
        let (client, peer) = (self.url(), format!("http://{}", self.peer));
        // It ends with this test, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--log-level", "error", "--logger", "zap"])
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(&self.more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("etcd starts"));
        let begin = Instant::now();
        while !self.control(&["endpoint", "health"]) {
            assert!(begin.elapsed() < Duration::from_secs(60), "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether it answers; without the operator's command, whether it listens.
    pub fn control(&self, args: &[&str]) -> bool {
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout", "3s", "--endpoints", &self.url()])
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match done {
            Ok(status) => status.success(),
            Err(_) => TcpStream::connect(self.client).is_ok(),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let id = Pid::from_raw(i32::try_from(child.id()).expect("a process"));
            kill(id, signal).expect("a signal");
        }
    }

    /// Stops it for a while, as if the network were cut. It does nothing more when this returns.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let child = self.child.as_ref().map_or(0, Child::id);
        let id = Pid::from_raw(i32::try_from(child).expect("a process"));
        let status = loop {
            match waitpid(id, Some(WaitPidFlag::WUNTRACED)) {
                Err(nix::errno::Errno::EINTR) => {}
                status => break status.expect("its state"),
            }
        };
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it dies");
            child.wait().expect("it is dead");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _dead = child.kill();
            let _dead = child.wait();
        }
    }
}

/// Streams through a relay. `None` while it is cut.
type Streams = Arc<Mutex<Option<Vec<TcpStream>>>>;

/// A relay to etcd that can be cut, for one user.
pub struct Relay {
    address: SocketAddr,
    streams: Streams,
}

impl Relay {
    /// Listens as long as this process lives.
    pub fn to(server: &Server) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let (address, to) = (listener.local_addr().expect("its address"), server.client);
        let streams: Streams = Arc::new(Mutex::new(Some(Vec::new())));
        let all = Arc::clone(&streams);
        std::thread::spawn(move || {
            for one in listener.incoming().map_while(Result::ok) {
                let Ok(other) = TcpStream::connect(to) else { continue };
                let mut all = all.lock().expect("no panic");
                let Some(all) = all.as_mut() else { continue };
                for (from, to) in [(&one, &other), (&other, &one)] {
                    let mut from = from.try_clone().expect("a descriptor");
                    let mut to = to.try_clone().expect("a descriptor");
                    std::thread::spawn(move || {
                        // Both sides are told of any end.
                        let _ended = io::copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Both);
                        let _gone = from.shutdown(Shutdown::Both);
                    });
                }
                all.extend([one, other]);
            }
        });
        Relay { address, streams }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all streams, and lets nothing through.
    pub fn cut(&self) {
        for stream in self.streams.lock().expect("no panic").take().into_iter().flatten() {
            // It may have ended already.
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets streams through again.
    pub fn mend(&self) {
        *self.streams.lock().expect("no panic") = Some(Vec::new());
    }
}
