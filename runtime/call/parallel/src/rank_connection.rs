//! Authenticated connection between a proxy and rank 0 of its job.
//!
//! Each end proves that it knows the key without sending it. Both choose 32 random bytes, and send a keyed
//! hash of their role and all these bytes. Afterwards a message is its length in 4 bytes and its content.
//! Bytes of arguments have no length, because both ends know it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::layout::Slot;
use kumi_call_wire::native::Arena;

/// The shared key.
pub type Key = [u8; 32];

/// Longest message in bytes: the longest description, as a JSON string.
const MOST: usize = 8 << 20;
/// Bytes copied at once.
const PIECE: usize = 256 << 10;
/// How long a peer may take to identify itself. A rank may wait for its turn meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often rank 0 tries again after a refusal, and the pause before.
const AGAIN: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);

/// Random bytes that nobody can guess.
///
/// # Errors
/// The system has no random bytes.
pub fn random() -> io::Result<Key> {
    crate::random::bytes()
}

/// The proof that `role` knows the key. Hashes compare in constant time.
fn proof(key: &Key, role: &[u8], rank: &Key, proxy: &Key) -> blake3::Hash {
    blake3::keyed_hash(key, &[role, rank, proxy].concat())
}

fn refuse<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know the key"))
}

/// One end of the connection.
#[derive(Debug)]
pub struct RankConnection(TcpStream);

impl RankConnection {
    fn prepared(stream: TcpStream) -> io::Result<RankConnection> {
        crate::tcp::prepare(&stream)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(RankConnection(stream))
    }

    fn known(self) -> io::Result<RankConnection> {
        self.0.set_read_timeout(None)?;
        self.0.set_write_timeout(None)?;
        Ok(self)
    }

    /// Receives the peer's 32 bytes before the deadline. Slow peers count as silent ones.
    fn key(&mut self, until: Instant) -> io::Result<Key> {
        let mut bytes = Key::default();
        let mut come = 0;
        while come < bytes.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.set_read_timeout(Some(left))?;
            match self.0.read(&mut bytes[come..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => come += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// The proxy's end of an accepted connection.
    ///
    /// # Errors
    /// The peer is not rank 0 of the job, or has gone.
    pub fn accept(stream: TcpStream, key: &Key) -> io::Result<RankConnection> {
        let (mut link, until) = (RankConnection::prepared(stream)?, Instant::now() + PATIENCE);
        let (rank, proxy) = (link.key(until)?, random()?);
        link.0.write_all(&[proxy, *proof(key, b"proxy", &rank, &proxy).as_bytes()].concat())?;
        if proof(key, b"rank", &rank, &proxy) != blake3::Hash::from_bytes(link.key(until)?) {
            return refuse();
        }
        link.known()
    }

    /// Connects rank 0, and receives the proxy's first message. It tries again if too many other connections
    /// crowd it out.
    ///
    /// # Errors
    /// No proxy answers, or the peer does not know the key.
    pub fn connect(address: &str, key: &Key) -> io::Result<(RankConnection, Vec<u8>)> {
        let address = address.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        let closed = [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ];
        for _ in 0..AGAIN {
            match RankConnection::connect_once(&address, key) {
                Err(error) if closed.contains(&error.kind()) => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
        RankConnection::connect_once(&address, key)
    }

    fn connect_once(address: &SocketAddr, key: &Key) -> io::Result<(RankConnection, Vec<u8>)> {
        let mut link = RankConnection::prepared(TcpStream::connect_timeout(address, PATIENCE)?)?;
        let until = Instant::now() + PATIENCE;
        let rank = random()?;
        link.0.write_all(&rank)?;
        let (proxy, shown) = (link.key(until)?, link.key(until)?);
        if proof(key, b"proxy", &rank, &proxy) != blake3::Hash::from_bytes(shown) {
            return refuse();
        }
        link.0.write_all(proof(key, b"rank", &rank, &proxy).as_bytes())?;
        let mut link = link.known()?;
        // Newer connections may have evicted this one before its proof.
        let first = link.receive(usize::MAX)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((link, first))
    }

    /// Whether the other end is still there and silent, as it should be now.
    pub fn is_open(&self) -> bool {
        let peeked = self.0.set_nonblocking(true).and_then(|()| self.0.peek(&mut [0]));
        let waits = peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).is_ok() && waits
    }

    /// A second handle of the stream, to watch it or shut it down.
    ///
    /// # Errors
    /// An error of the system.
    pub fn stream(&self) -> io::Result<TcpStream> {
        self.0.try_clone()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end has gone.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length as usize <= MOST);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(message)
    }

    /// Waits for a message of at most `most` bytes. `None`: the other end has closed.
    ///
    /// # Errors
    /// The other end has gone, or its message is malformed.
    pub fn receive(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut length = [0; 4];
        let begun = loop {
            match self.0.read(&mut length[..1]) {
                // A signal of the routine.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        if begun == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut length[1..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most.min(MOST) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = vec![0; length];
        self.0.read_exact(&mut message)?;
        Ok(Some(message))
    }

    /// Sends the content of an argument's place.
    ///
    /// # Errors
    /// The other end has gone.
    pub fn give(&mut self, arena: &Arena, slot: &Slot) -> io::Result<()> {
        for piece in pieces(slot) {
            self.0.write_all(&arena.read(piece.0, piece.1))?;
        }
        Ok(())
    }

    /// Receives into an argument's place.
    ///
    /// # Errors
    /// The other end has gone.
    pub fn take(&mut self, arena: &Arena, slot: &Slot) -> io::Result<()> {
        let mut bytes = vec![0; slot.bytes.min(PIECE)];
        for (offset, length) in pieces(slot) {
            self.0.read_exact(&mut bytes[..length])?;
            arena.write(offset, &bytes[..length]);
        }
        Ok(())
    }
}

/// Splits an argument's place into pieces: offsets and lengths in bytes.
pub fn pieces(slot: &Slot) -> impl Iterator<Item = (usize, usize)> {
    let (begin, end) = (slot.offset, slot.offset + slot.bytes);
    (begin..end).step_by(PIECE).map(move |offset| (offset, PIECE.min(end - offset)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_who_knows_the_key_gets_in_and_messages_are_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (key, wrong) = (random().expect("bytes"), random().expect("bytes"));
        let other = std::thread::spawn(move || {
            assert!(RankConnection::connect(&address, &wrong).is_err());
            let (mut link, first) = RankConnection::connect(&address, &key).expect("it is let in");
            assert_eq!(first, b"first");
            link.send(b"hello").expect("sent");
            assert!(link.send(&vec![0; MOST + 1]).is_err());
            link.send(&[0; 100]).expect("sent");
            let arena = Arena::new(1 << 20).expect("memory");
            arena.write(5, &vec![7; 600_000]);
            link.give(&arena, &Slot { offset: 5, bytes: 600_000, text: 0 }).expect("sent");
        });
        let next = || listener.accept().expect("a connection").0;
        assert!(RankConnection::accept(next(), &key).is_err());
        let mut link = RankConnection::accept(next(), &key).expect("it is the one");
        link.send(b"first").expect("sent");
        assert_eq!(link.receive(5).expect("a message"), Some(b"hello".to_vec()));
        assert!(link.receive(99).is_err());
        assert_eq!(link.key(Instant::now() + PATIENCE).expect("bytes"), [0; 32]);
        link.0.set_read_timeout(None).expect("set");
        link.0.read_exact(&mut [0; 68]).expect("the rest");
        let arena = Arena::new(1 << 20).expect("memory");
        link.take(&arena, &Slot { offset: 9, bytes: 600_000, text: 0 }).expect("received");
        let around = arena.read(8, 600_002);
        assert!(around[0] == 0 && around[600_001] == 0);
        assert!(around[1..=600_000].iter().all(|byte| *byte == 7));
        assert_eq!(link.receive(99).expect("the end"), None);
        other.join().expect("the other end");
    }
}
