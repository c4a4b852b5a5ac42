//! New cores, and cores that go on with what the files of a stopped rank have.

use std::sync::atomic::Ordering::Relaxed;

use kumi_proto::{ChannelEnd, ChannelKey, ContextError, Endpoint, Rank};

use super::{ChannelCore, Handler, RemoteRanks};
use crate::channel::protocol::{protocol, run_of_full_packets};
use crate::channel::turns::WaitState;
use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::sys;
use crate::wait::blocking_wait::BlockingWait;
use crate::wire::fault_injection::FaultSettings;
use crate::wire::path_mtu::PathMtuChecks;
use crate::wire::unreachable::UnreachablePeers;
use crate::wire::{Wire, ack_settings};

/// Finds the bytes of a packet that was lent, by the rank addressed and the place. False if it cannot.
pub(crate) type FindLent<'l> = dyn FnMut(Rank, u64, &mut [u8]) -> bool + 'l;

/// What a core begins with.
pub(crate) enum Origin<'l> {
    /// Nothing.
    New,
    /// The state in the files of a rank that was stopped and copied.
    Copy(&'l mut FindLent<'l>),
}

impl<H: Handler> ChannelCore<H> {
    pub(crate) fn new(
        attachment: &Attachment,
        wire: Option<Wire>,
        handler: H,
        origin: Origin<'_>,
    ) -> Result<ChannelCore<H>, AttachError> {
        let goes_on = matches!(origin, Origin::Copy(_));
        if goes_on && attachment.own().state.changes.load(Relaxed) & 1 == 1 {
            return Err(ContextError::Busy.into());
        }
        let remote = remote_ranks(attachment, wire, origin)?;
        let local = attachment.local_count();
        let mut core = ChannelCore {
            handler,
            remote,
            outgoing: (0..local).map(|_| None).collect(),
            incoming: (0..local).map(|_| None).collect(),
            hot: None,
            stalled: Vec::new(),
            unfinished: Vec::new(),
            ring_sent: 0,
            ring_delivered: 0,
            blocked: false,
            armed: false,
            interval: 1,
            waits: WaitState::new(),
        };
        if goes_on {
            core.take_over(attachment);
        }
        Ok(core)
    }

    /// Goes on with the rings as they are. Which of them have something is not known.
    fn take_over(&mut self, attachment: &Attachment) {
        let state = &attachment.own().state;
        self.ring_sent = state.ring_sent.load(Relaxed);
        self.ring_delivered = state.ring_delivered.load(Relaxed);
        self.unfinished = (0..attachment.local_count()).collect();
        self.publish(attachment);
    }
}

/// The endpoint and the wire to the ranks of other nodes, if there are any.
fn remote_ranks(
    attachment: &Attachment,
    wire: Option<Wire>,
    origin: Origin<'_>,
) -> Result<Option<RemoteRanks>, AttachError> {
    // Read by every rank, so that a wrong one is found whatever the layout of the job.
    let (ack, faults) = (ack_settings::from_env()?, FaultSettings::from_env()?);
    let checksum = ack_settings::checksum_from_env()?;
    let far = attachment.local_count() < attachment.ranks() as usize;
    let Some(wire) = wire.filter(|_| far) else { return Ok(None) };
    let key = ChannelKey(attachment.channel_key());
    let config = protocol(attachment, ack, checksum, wire.receive_buffer());
    let (me, ranks, run) = (attachment.rank(), attachment.ranks(), run_of_full_packets(&config));
    let region = attachment.take_channel_region();
    let region = region.ok_or(AttachError::BadSegment("its channel is in use"))?;
    let end = ChannelEnd { me, ranks, key, seal: attachment.seal_key() };
    let now = sys::now();
    let endpoint = match origin {
        Origin::New => Endpoint::create(region, config, &end)?,
        Origin::Copy(find) => Endpoint::resume(region, config, &end, now, find)?,
    };
    let wire = wire.open(attachment, faults)?;
    Ok(Some(RemoteRanks {
        endpoint,
        lands: wire.lands(),
        offered: None,
        whole: Vec::new(),
        wire,
        blocking_wait: BlockingWait::new().map_err(io_error("timerfd_create"))?,
        now,
        published: 0,
        held: false,
        left: 0,
        run,
        paths: PathMtuChecks::new(ranks),
        unreachable: UnreachablePeers::new(),
    }))
}
