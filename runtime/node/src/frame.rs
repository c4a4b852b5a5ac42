//! Frames: a `u32` little-endian length, then that many bytes of postcard.
//!
//! Used on the tree's TLS links and on the clients' sockets. A frame that is longer than its limit
//! or does not decode whole is an error after which the stream cannot be trusted: close it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest frame a client may send: a megabyte and some slack for what surrounds the data.
pub const CLIENT_LIMIT: usize = (1 << 20) + (64 << 10);
/// Longest frame between daemons and from the head to a client: samples and job tables of the
/// largest cluster fit; what a timetable may take is bounded by [`kumi_sched::registry::Limits`].
pub const LINK_LIMIT: usize = 16 << 20;
/// Longest piece of a program or of input in one frame, in bytes.
pub const CHUNK: usize = 256 << 10;

/// Why a frame could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than the limit.
    #[error("a frame of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Not what is spoken here: other version, garbage, or bytes left over.
    #[error("a frame does not decode: {0}")]
    Malformed(String),
    /// The stream ended inside a frame.
    #[error("the connection ended inside a frame")]
    Truncated,
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
}

impl FrameError {
    /// Whether the other side broke the rules, as opposed to the connection breaking.
    pub fn is_violation(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::Malformed(_))
    }
}

/// The bytes of a frame holding `value`, its length included.
///
/// # Errors
/// When it exceeds `limit`.
pub fn encode<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_extend(value, vec![0; 4])
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length = bytes.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= limit);
    let prefix = prefix.ok_or(FrameError::TooLong { length, limit })?;
    let mut bytes = bytes;
    bytes[..4].copy_from_slice(&prefix.to_le_bytes());
    Ok(bytes)
}

/// The value of a frame's content.
///
/// # Errors
/// When it does not decode, or bytes are left over.
pub fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, FrameError> {
    let (value, rest) = postcard::take_from_bytes(content)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(FrameError::Malformed(format!("{} bytes left over", rest.len())))
    }
}

/// Receives a frame; `None` when the stream ended before one.
///
/// # Errors
/// When the frame is too long, malformed or cut off, or the stream failed.
pub async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<T>, FrameError> {
    match read_content(stream, limit).await? {
        Some(content) => decode(&content).map(Some),
        None => Ok(None),
    }
}

/// Receives a frame's content undecoded; `None` when the stream ended before one.
///
/// # Errors
/// When the frame is too long or cut off, or the stream failed.
pub async fn read_content(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<Vec<u8>>, FrameError> {
    let mut prefix = [0; 4];
    let mut have = 0;
    while have < prefix.len() {
        match stream.read(&mut prefix[have..]).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(FrameError::Truncated),
            count => have += count,
        }
    }
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    // Grows with what really comes, so that a lying length costs nothing.
    let mut content = Vec::with_capacity(length.min(64 << 10));
    let wanted = u64::try_from(length).unwrap_or(u64::MAX);
    let got = (&mut *stream).take(wanted).read_to_end(&mut content).await?;
    if got == length { Ok(Some(content)) } else { Err(FrameError::Truncated) }
}

/// Sends a frame.
///
/// # Errors
/// When it exceeds `limit` or the stream failed.
pub async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
    limit: usize,
) -> Result<(), FrameError> {
    stream.write_all(&encode(value, limit)?).await?;
    stream.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{ClientRequest, Up};

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn read_all(mut bytes: &[u8], limit: usize) -> Result<Option<ClientRequest>, FrameError> {
        read(&mut bytes, limit).await
    }

    #[test]
    fn frames_come_back_and_end_cleanly() {
        run(async {
            let mut bytes = Vec::new();
            let probe = Up::ClockProbe { stamp: 7 };
            write(&mut bytes, &probe, LINK_LIMIT).await.unwrap();
            write(&mut bytes, &probe, LINK_LIMIT).await.unwrap();
            let mut stream = bytes.as_slice();
            assert_eq!(read::<Up>(&mut stream, LINK_LIMIT).await.unwrap(), Some(probe.clone()));
            assert_eq!(read::<Up>(&mut stream, LINK_LIMIT).await.unwrap(), Some(probe));
            assert_eq!(read::<Up>(&mut stream, LINK_LIMIT).await.unwrap(), None);
        });
    }

    #[test]
    fn bad_frames_are_errors() {
        run(async {
            let good = encode(&ClientRequest::Hello { version: 1 }, CLIENT_LIMIT).unwrap();
            assert!(matches!(read_all(&good[..3], 99).await, Err(FrameError::Truncated)));
            let cut = &good[..good.len() - 1];
            assert!(matches!(read_all(cut, 99).await, Err(FrameError::Truncated)));
            assert!(matches!(read_all(&good, 1).await, Err(FrameError::TooLong { length: 2, .. })));
            let huge = [0xff; 8];
            let error = read_all(&huge, CLIENT_LIMIT).await.unwrap_err();
            assert!(error.is_violation());
            // A byte left over, and a variant that does not exist.
            assert!(matches!(
                read_all(&[3, 0, 0, 0, 0, 1, 9], 99).await,
                Err(FrameError::Malformed(_))
            ));
            assert!(matches!(
                read_all(&[1, 0, 0, 0, 200], 99).await,
                Err(FrameError::Malformed(_))
            ));
        });
    }

    #[test]
    fn bytes_are_a_sequence_of_numbers_on_the_wire() {
        let request = ClientRequest::Input { job: kumi_sched::JobId(5), data: vec![7, 200, 9] };
        let bytes = encode(&request, CLIENT_LIMIT).unwrap();
        assert_eq!(bytes[4..], [4, 5, 3, 7, 200, 9]);
        assert_eq!(decode::<ClientRequest>(&bytes[4..]).unwrap(), request);
        // A length that lies.
        assert!(decode::<ClientRequest>(&[4, 5, 200, 7]).is_err());
    }

    #[test]
    fn too_long_is_refused_before_sending() {
        let chunk = vec![0u8; 2000];
        assert!(matches!(encode(&chunk, 1000), Err(FrameError::TooLong { limit: 1000, .. })));
    }

    #[test]
    fn the_largest_timetable_fits_with_room_for_the_rest_of_a_status() {
        let nodes = u32::try_from(crate::config::MAX_NODES).unwrap();
        let slots = kumi_sched::registry::Limits::of_cluster(nodes, 16).slots as usize;
        let node = kumi_sched::NodeId;
        let column = |number| kumi_sched::Column {
            node: node(number),
            slots: vec![vec![kumi_sched::JobId(u64::MAX)]; slots],
        };
        let timetable = kumi_sched::Timetable {
            generation: u64::MAX,
            start: kumi_sched::ClusterTime(u64::MAX),
            slice_ns: u64::MAX,
            phase_ns: u64::MAX,
            mode: kumi_sched::Mode::Gang { force_switch: true, fill: true },
            columns: (0..nodes).map(column).collect(),
            idle: vec![kumi_sched::JobId(u64::MAX); 1 << 16],
        };
        let alternate = (0..nodes).step_by(2).map(node);
        let set = kumi_control::message::NodeSet::from_nodes(alternate);
        let command = kumi_control::message::Command::Timetable(timetable);
        let frame = encode(&kumi_control::message::Down::Command(set, command), LINK_LIMIT);
        assert!(frame.unwrap().len() < LINK_LIMIT / 4 * 3);
    }
}
