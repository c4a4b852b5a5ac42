//! Gathering of arguments that servers hold: copies of this server's arrays, and fetches from others.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use kumi_rpc::{
    ArraySize, Client, ClientEvent, ClientHello, Code, Failure, FetchRequest, HeldArrayPart, Step,
    VERSIONS,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::Shared;
use super::super::arenas::Block;
use super::super::fetch_connection::FetchConnection;
use super::super::held_results::StoredArray;
use crate::held::{Gaps, Holder};
use crate::layout::Layout;
use crate::native::Target;
use crate::{values, voucher};

/// Bytes copied before other tasks get a turn.
const STEP: usize = 4 << 20;
/// How long another server may be silent.
const PATIENCE: Duration = Duration::from_secs(20);
/// Least bytes per second that another server must send over each such period.
const SLOWEST: u64 = 64 << 10;
/// Bytes read at once when their destination is not known.
const INPUT: usize = 16 << 10;
/// Most parts of a call's arguments.
const MOST_PARTS: usize = 1024;

/// A part that this server holds.
#[derive(Debug)]
struct LocalPart {
    kept: StoredArray,
    from: usize,
    to: usize,
    length: usize,
}

/// A part that another server holds.
#[derive(Debug)]
struct RemotePart {
    parameter: u16,
    head: FetchRequest,
    /// First byte in the call's memory.
    to: usize,
}

/// The parts to gather for a call.
#[derive(Debug, Default)]
pub struct GatherPlan {
    near: Vec<LocalPart>,
    /// By server address and voucher.
    far: BTreeMap<(String, String), Vec<RemotePart>>,
    /// What the client itself still sends of the arrays.
    pub gaps: BTreeMap<u16, Gaps>,
}

impl GatherPlan {
    /// Checks the held arrays in the head of a call. Allocates nothing for them.
    pub fn new(
        shared: &Shared,
        layout: &Layout,
        from: &[(u16, Vec<HeldArrayPart>)],
        holder: Holder<'_>,
    ) -> Result<GatherPlan, Failure> {
        let mut sources = GatherPlan::default();
        if from.iter().map(|(_, parts)| parts.len()).sum::<usize>() > MOST_PARTS {
            return Err(values::bad(-1, format!("more than {MOST_PARTS} parts of held arrays")));
        }
        for (parameter, parts) in from {
            let wrong = |text: &str| {
                values::bad(i64::from(*parameter), format!("argument {parameter} {text}"))
            };
            let array = layout.array(*parameter).filter(|argument| argument.mode.is_sent());
            let array = array.ok_or_else(|| wrong("is no array that is sent"))?;
            let gaps = Gaps::new(parts, array.sent);
            let gaps = gaps.ok_or_else(|| wrong("has fewer bytes than the parts that are held"))?;
            sources.gaps.insert(*parameter, gaps);
            for part in parts {
                // Inside the array, which fits into memory.
                let (to, length) = layout.range(*parameter, part.offset, part.length as usize);
                let is_none = part.server.is_empty() || !voucher::is_voucher(&part.voucher);
                if is_none && !part.voucher.is_empty() {
                    return Err(wrong("has an invalid voucher, or is held here"));
                }
                if part.server.is_empty() {
                    let kept = shared.find(part.name, holder, i64::from(*parameter))?;
                    let range = kept.range(part.from, part.length);
                    let (from, _) =
                        range.ok_or_else(|| wrong("wants more than the held array has"))?;
                    sources.near.push(LocalPart { kept, from, to, length });
                } else {
                    let refused = |text| Failure::new(Code::NoSource, i64::from(*parameter), text);
                    shared.may_fetch(&part.server).map_err(refused)?;
                    let head =
                        FetchRequest { name: part.name, offset: part.from, length: part.length };
                    let far = RemotePart { parameter: *parameter, head, to };
                    let from = (part.server.clone(), part.voucher.clone());
                    sources.far.entry(from).or_default().push(far);
                }
            }
        }
        Ok(sources)
    }

    /// Whether there is nothing to gather.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty()
    }

    /// What the client still sends of arrays of these sizes.
    pub fn left(&self, mut sizes: Vec<ArraySize>) -> Vec<ArraySize> {
        for size in &mut sizes {
            size.bytes = self.gaps.get(&size.argument).map_or(size.bytes, Gaps::bytes);
        }
        sizes
    }

    /// Gathers all parts. `turns` are the client's fetch permits.
    pub async fn gather(
        self,
        shared: Rc<Shared>,
        turns: Rc<Semaphore>,
        block: Rc<Block>,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        for near in &self.near {
            let mut done = 0;
            while done < near.length {
                let step = (near.length - done).min(STEP);
                block.arena.copy_from(
                    &near.kept.block.arena,
                    near.from + done,
                    near.to + done,
                    step,
                );
                done += step;
                tokio::task::yield_now().await;
            }
            shared.count(|traffic| &traffic.copied, near.length as u64);
        }
        for near in self.near {
            shared.give(near.kept.block);
        }
        for ((server, voucher), wants) in &self.far {
            let bytes: u64 = wants.iter().map(|want| want.head.length).sum();
            let most = Duration::from_secs(60 + bytes / SLOWEST);
            let parameter = wants.first().map_or(0, |want| want.parameter);
            let late = |_| Err(unreachable(server, parameter, "it sends too slowly"));
            let bring = async {
                // The time limit begins after the wait for a permit: other fetches are not that server's
                // fault.
                let (_turn, turn) = (turns.acquire().await, shared.fetches.acquire().await);
                let Ok(_turn) = turn else {
                    return Err(unreachable(server, parameter, "this server ends"));
                };
                let refused = |text| Failure::new(Code::NoSource, i64::from(parameter), text);
                shared.is_peer(server).await.map_err(refused)?;
                let bring = bring(&shared, (server, voucher), wants, &block);
                timeout(most, bring).await.unwrap_or_else(late)
            };
            let brought = match deadline {
                None => bring.await,
                Some(deadline) => timeout_at(deadline, bring).await.unwrap_or_else(|_| {
                    let text = "the call's time was over before its arrays had come";
                    Err(Failure::new(Code::TimedOut, 0, text))
                }),
            };
            brought?;
        }
        Ok(())
    }
}

fn unreachable(server: &str, parameter: u16, why: impl std::fmt::Display) -> Failure {
    let text = format!("an array could not be fetched from the server at {server}: {why}");
    Failure::new(Code::NoSource, i64::from(parameter), text)
}

/// Fetches from one server. It sees the voucher if there is one, and never a token of this server or of the
/// client.
async fn bring(
    shared: &Shared,
    (server, voucher): (&str, &str),
    wants: &[RemotePart],
    block: &Rc<Block>,
) -> Result<(), Failure> {
    let parameter = wants.first().map_or(0, |want| want.parameter);
    let failed = |error: io::Error| unreachable(server, parameter, error);
    let late = |_| unreachable(server, parameter, "it did not answer in time");
    let fetch_connection = timeout(PATIENCE, FetchConnection::open(shared, server, PATIENCE)).await;
    let mut fetch_connection = fetch_connection.map_err(late)?.map_err(failed)?;
    let mut fetching = ArrayFetch::new(block, server, parameter);
    let program = format!("kumi call serve {}", shared.config.name);
    let hello = ClientHello {
        versions: VERSIONS,
        token: voucher.to_owned(),
        program,
        site: String::new(),
        maps_memory: false,
    };
    let mut out = hello.encode();
    for want in wants {
        fetching.streams.insert(fetching.rpc.fetch(&want.head, &mut out), want);
    }
    fetch_connection.write_all(&out).await.map_err(failed)?;
    let bytes = wants.iter().map(|want| want.head.length).sum();
    let received = fetching.receive(&mut fetch_connection).await;
    fetch_connection.close();
    received?;
    shared.count(|traffic| &traffic.from_servers, bytes);
    Ok(())
}

/// The fetch of arrays over one connection.
struct ArrayFetch<'a> {
    rpc: Client,
    streams: BTreeMap<u32, &'a RemotePart>,
    block: &'a Rc<Block>,
    server: &'a str,
    parameter: u16,
    pace: MinimumRate,
}

/// Check that data keeps arriving at a minimum rate.
#[derive(Debug)]
struct MinimumRate {
    since: Instant,
    bytes: u64,
}

impl MinimumRate {
    fn new() -> MinimumRate {
        MinimumRate { since: Instant::now(), bytes: 0 }
    }

    /// Counts arrived bytes. Returns whether they are enough.
    fn adds(&mut self, now: Instant, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if now.saturating_duration_since(self.since) < PATIENCE {
            return true;
        }
        let enough = self.bytes >= SLOWEST * PATIENCE.as_secs();
        *self = MinimumRate { since: now, bytes: 0 };
        enough
    }
}

impl<'a> ArrayFetch<'a> {
    fn new(block: &'a Rc<Block>, server: &'a str, parameter: u16) -> ArrayFetch<'a> {
        let (rpc, streams) = (Client::new(), BTreeMap::new());
        ArrayFetch { rpc, streams, block, server, parameter, pace: MinimumRate::new() }
    }
}

impl ArrayFetch<'_> {
    fn failed(&self, why: impl std::fmt::Display) -> Failure {
        unreachable(self.server, self.parameter, why)
    }

    /// Receives until all parts are there.
    async fn receive(&mut self, fetch_connection: &mut FetchConnection) -> Result<(), Failure> {
        let mut input = vec![0; INPUT];
        let (mut begin, mut end) = (0, 0);
        while !self.streams.is_empty() {
            let mut target = Target::None;
            let mut room = 0;
            match self.rpc.step(&input[begin..end]).map_err(|error| self.failed(error))? {
                Step::Event(consumed, event) => {
                    begin += consumed;
                    if let Some(event) = event {
                        self.take(event)?;
                    }
                    continue;
                }
                Step::Data(place, length) => {
                    let to = place.and_then(|place| {
                        let want = self.streams.get(&place.stream)?;
                        // Inside the array: sending more than requested breaks the protocol.
                        Some(want.to + place.offset as usize)
                    });
                    let count = length.min(end - begin);
                    if count > 0 {
                        if let Some(to) = to {
                            self.block.arena.write(to, &input[begin..begin + count]);
                        }
                        self.rpc.placed(count);
                        begin += count;
                        continue;
                    }
                    if let Some(to) = to {
                        (target, room) = (Target::Arena(&self.block.arena, to, length), length);
                    }
                }
                Step::More(needed) => {
                    input.copy_within(begin..end, 0);
                    (begin, end) = (0, end - begin);
                    if input.len() < needed {
                        input.resize(needed, 0);
                    }
                }
            }
            if begin == end {
                (begin, end) = (0, 0);
            }
            let read = fetch_connection.read(target, &mut input[end..]).await;
            let count = match read.map_err(|error| self.unread(&error))? {
                0 => return Err(self.failed("it closed the connection")),
                count => count,
            };
            // A slow server would keep a fetch permit for hours.
            if !self.pace.adds(Instant::now(), count) {
                return Err(self.failed("it sends too slowly"));
            }
            self.rpc.placed(count.min(room));
            end += count.saturating_sub(room);
        }
        Ok(())
    }

    /// The failure for a connection that cannot be read.
    fn unread(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut => self.failed("it did not answer in time"),
            _ => self.failed(error),
        }
    }

    fn take(&mut self, event: ClientEvent) -> Result<(), Failure> {
        match event {
            ClientEvent::Hello(hello) => {
                hello.version.map(|_| ()).map_err(|failure| self.failed(failure.text))
            }
            ClientEvent::Done(stream) => {
                self.streams.remove(&stream);
                Ok(())
            }
            ClientEvent::Failed(stream, failure) => {
                let parameter =
                    self.streams.get(&stream).map_or(self.parameter, |far| far.parameter);
                let code = failure.code;
                let mut failure = unreachable(self.server, parameter, failure.text);
                if matches!(code, Code::NotHeld | Code::NotYet) {
                    failure.code = code;
                }
                Err(failure)
            }
            ClientEvent::Ended(failure) => Err(self.failed(failure.text)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_a_little_now_and_then_is_too_slow() {
        let mut pace = MinimumRate::new();
        let begin = pace.since;
        let times: Vec<Instant> =
            (0..=120).map(|seconds| begin + Duration::from_secs(seconds)).collect();
        assert!(times[1..20].iter().all(|now| pace.adds(*now, 1)));
        assert!(!pace.adds(times[20], 1), "20 bytes in 20 s");
        assert!(times[21..].iter().all(|now| pace.adds(*now, SLOWEST as usize)));
    }
}
