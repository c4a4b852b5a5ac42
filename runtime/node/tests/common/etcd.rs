//! Members of an etcd for a test, in temporary folders.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

struct Member {
    child: Option<Child>,
    client: SocketAddr,
    arguments: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Member {
    /// Whether it has ended by itself, as for an address that another process took before it.
    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child.try_wait().unwrap().is_some()
    }

    /// Starts it, perhaps again. It ends with this test, however that ends.
    fn start(&mut self) {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--log-level", "error", "--logger", "zap"])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
    }
}

/// An authority that members trust, and certificates that it has signed: one for members, one for clients.
pub struct Certificates(tempfile::TempDir);

impl Certificates {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for (name, subject) in [("member", "127.0.0.1"), ("client", "head")] {
            let params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self(folder)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// How often members are started with other ports: between the choice of one and its use another process may take it.
const ATTEMPTS: usize = 5;

/// All members, ended when this is dropped.
pub struct Members(Vec<Member>);

fn arguments_for_tls(certificates: &Certificates) -> Vec<String> {
    let files =
        [("trusted-ca-file", "ca.pem"), ("cert-file", "member.pem"), ("key-file", "member.key")];
    let of_file = |(option, name)| {
        let path: &Path = &certificates.file(name);
        [format!("--{option}"), path.display().to_string()]
    };
    files.into_iter().flat_map(of_file).chain(["--client-cert-auth".to_owned()]).collect()
}

fn address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

impl Members {
    /// Starts so many. Without the command it is skipped, visibly.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, None)
    }

    /// Starts one with so few bytes of space.
    pub fn start_small(bytes: u64) -> Option<Self> {
        Self::start_of(1, None, &[format!("--quota-backend-bytes={bytes}")])
    }

    /// Starts so many that take clients with certificates only.
    pub fn start_with(count: usize, certificates: Option<&Certificates>) -> Option<Self> {
        Self::start_of(count, certificates, &[])
    }

    fn start_of(
        count: usize,
        certificates: Option<&Certificates>,
        more: &[String],
    ) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            kumi_skip::skip("etcd", "there is no command `etcd` (Debian package etcd-server)");
            return None;
        }
        let started = (0..ATTEMPTS).find_map(|_| Self::try_start(count, certificates, more));
        Some(started.expect("members that do not end by themselves"))
    }

    /// None if a member has ended by itself.
    fn try_start(
        count: usize,
        certificates: Option<&Certificates>,
        more: &[String],
    ) -> Option<Self> {
        let peers: Vec<SocketAddr> = (0..count).map(|_| address()).collect();
        let all: Vec<String> =
            peers.iter().enumerate().map(|(at, peer)| format!("m{at}=http://{peer}")).collect();
        let member = |at: usize| {
            let (client, folder) = (address(), tempfile::tempdir().unwrap());
            let scheme = if certificates.is_some() { "https" } else { "http" };
            let (url, peer) = (format!("{scheme}://{client}"), format!("http://{}", peers[at]));
            let data = folder.path().join("data").display().to_string();
            let mut arguments = vec!["--name".to_owned(), format!("m{at}")];
            for (option, value) in [
                ("data-dir", &data),
                ("listen-client-urls", &url),
                ("advertise-client-urls", &url),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
                ("initial-cluster", &all.join(",")),
            ] {
                arguments.extend([format!("--{option}"), value.clone()]);
            }
            arguments.extend(certificates.map(arguments_for_tls).unwrap_or_default());
            arguments.extend_from_slice(more);
            let mut member = Member { child: None, client, arguments, _folder: folder };
            member.start();
            member
        };
        let mut members = Self((0..count).map(member).collect());
        let end = Instant::now() + Duration::from_secs(120);
        while !members.0.iter().all(|member| TcpStream::connect(member.client).is_ok()) {
            if members.0.iter_mut().any(Member::has_ended) {
                return None;
            }
            assert!(Instant::now() < end, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(members)
    }

    /// As cluster.toml names it.
    pub fn state(&self) -> String {
        let all: Vec<String> = self.0.iter().map(|member| member.client.to_string()).collect();
        format!("etcd://{}", all.join(","))
    }

    /// `http://HOST:PORT` of all.
    pub fn endpoints(&self) -> Vec<String> {
        self.0.iter().map(|member| format!("http://{}", member.client)).collect()
    }

    /// Sends a signal to one.
    pub fn signal(&self, at: usize, signal: Signal) {
        let child = self.0[at].child.as_ref().expect("it runs");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    }

    /// Starts one again. It listens when this returns.
    pub fn start_again(&mut self, at: usize) {
        self.0[at].start();
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.0[at].client).is_err() {
            assert!(Instant::now() < end, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills one.
    pub fn kill(&mut self, at: usize) {
        let mut child = self.0[at].child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for mut child in self.0.drain(..).filter_map(|mut member| member.child.take()) {
            // One that is dead already is no error.
            let _dead = child.kill();
            let _dead = child.wait();
        }
    }
}
