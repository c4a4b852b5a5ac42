//! The address of this head: taken from the start, listened on once it leads.
//!
//! Who calls a head that does not lead is refused by the kernel at once, and tries the next.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket};

use crate::config::ClusterConfig;
use crate::exit::{ExitCode, Failure};
use crate::listening::{self, Patience};
use crate::{paths, tcp};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// An address that is bound, and not listened on.
#[derive(Debug)]
pub(in crate::head) struct OwnAddress {
    socket: TcpSocket,
    address: SocketAddr,
    /// The file that says which process listens there.
    pid: PathBuf,
}

/// Makes sure that no other head has this folder, as long as there is the file. Two that wait for one number could both bind its
/// address.
///
/// # Errors
/// Another process has it, or it cannot be locked.
pub(in crate::head) fn lock_folder(dir: &Path) -> Result<File, Failure> {
    let path = paths::head_lock(dir);
    let cannot = |error: &io::Error| {
        Failure::new(ExitCode::Io, format!("{} cannot be locked: {error}", path.display()))
    };
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| cannot(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(listening::second_head(dir)),
        Err(TryLockError::Error(error)) => Err(cannot(&error)),
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl OwnAddress {
    /// That of head `number`; without a number the first one that is of this machine. Waits until the machine has it.
    ///
    /// # Errors
    /// There is no such head, or another process has its address.
    pub(in crate::head) async fn take(
        dir: &Path,
        config: &ClusterConfig,
        number: Option<usize>,
    ) -> Result<Self, Failure> {
        let heads = match config.heads.len() {
            0 => vec![config.head_here()?],
            _ => config.heads(),
        };
        let chosen = match number {
            None => &heads[..],
            Some(number) => heads.get(number..=number).ok_or_else(|| {
                let text = format!(
                    "there is no head {number}: cluster.toml names heads 0 to {}",
                    heads.len() - 1
                );
                Failure::new(ExitCode::Usage, text)
            })?,
        };
        listening::await_interface(config.head_interface()).await;
        let awaited: Vec<String> = chosen.iter().map(|address| address.ip().to_string()).collect();
        let what = format!(
            "waiting for the address {}, which this machine does not have; if it is another host's, correct cluster.toml or start the daemon there",
            awaited.join(" or ")
        );
        let mut patience = Patience::new(&what);
        let pid = paths::head_pid(dir);
        loop {
            for &address in chosen {
                match bind(address) {
                    Ok(socket) => return Ok(Self { socket, address, pid }),
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                    Err(error) => return Err(listening::failure(address, &error, Some(&pid))),
                }
            }
            patience.wait().await;
        }
    }

    /// The address.
    pub(in crate::head) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on it.
    ///
    /// # Errors
    /// `Exists` when another process does.
    pub(in crate::head) fn listen(self) -> Result<TcpListener, Failure> {
        let listener = self.socket.listen(BACKLOG);
        let prepared = listener.and_then(|listener| tcp::prepare(&listener).map(|()| listener));
        prepared.map_err(|error| listening::failure(self.address, &error, Some(&self.pid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config(heads: &[SocketAddr]) -> ClusterConfig {
        let list: Vec<String> =
            heads.iter().map(|head| format!("{:?}", head.to_string())).collect();
        let text = format!(
            "name = \"x\"\nkind = \"hosts\"\nhead = {}\nheads = [{}]\nstate = \"etcd://a\"\n\
             [[nodes]]\nname = \"n\"\naddress = \"127.0.0.1\"\nport = 1\n",
            list[0],
            list.join(", ")
        );
        ClusterConfig::parse(&text, Path::new("cluster.toml")).unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_address_is_taken_and_refuses_until_it_is_listened_on() {
        // An address of documentation, which is of no machine.
        let far = SocketAddr::from(([192, 0, 2, 1], 7700));
        let dir = tempfile::tempdir().unwrap();
        // The system may give the port to another process before this one takes it.
        let (near, config, own) = loop {
            let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let near = free.local_addr().unwrap();
            drop(free);
            let config = config(&[far, near]);
            match OwnAddress::take(dir.path(), &config, None).await {
                Ok(own) => break (near, config, own),
                Err(error) => assert_eq!(error.code, ExitCode::Exists, "{error}"),
            }
        };
        let take = |number| OwnAddress::take(dir.path(), &config, number);
        assert_eq!(own.address(), near);
        let error = std::net::TcpStream::connect(near).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = own.listen().unwrap();
        assert!(std::net::TcpStream::connect(near).is_ok());
        assert_eq!(take(None).await.unwrap_err().code, ExitCode::Exists);
        let waiting = tokio::time::timeout(Duration::from_millis(100), take(Some(0)));
        assert!(waiting.await.is_err(), "its machine may get it yet");
        let error = take(Some(2)).await.unwrap_err();
        assert!(error.message.contains("heads 0 to 1"), "{error}");
    }

    #[test]
    fn a_folder_has_one_head_also_while_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock_folder(dir.path()).unwrap();
        let error = lock_folder(dir.path()).unwrap_err();
        assert_eq!(error.code, ExitCode::Exists);
        assert!(error.message.contains("another process is the head of"), "{error}");
        drop(first);
        drop(lock_folder(dir.path()).unwrap());
        let error = lock_folder(&dir.path().join("gone")).unwrap_err();
        assert_eq!(error.code, ExitCode::Io);
    }
}
