//! The machine as a program may know it: its node, the other nodes, its job's ranks.

use kumi_net::disclosure::{DisclosedPages, JobLoad, NodeLoad, RankReport, RankState};
use kumi_net::{AttachError, Attachment, Channel, ChannelSettings, Wire};

use crate::Context;
use crate::engine::Engine;
use crate::error::Error;

/// Starts a rank's channel, with the pages of its node if it has a daemon that gave it some.
pub(crate) fn channel(
    attachment: Attachment,
    wire: Option<Wire>,
    pages: Option<DisclosedPages>,
    engine: Engine,
) -> Result<Channel<Engine>, Error> {
    let mut channel = Channel::start_on(attachment, wire, ChannelSettings::from_env()?, engine)?;
    if let Some(pages) = pages {
        let attachment = channel.attachment();
        if (pages.job(), pages.ranks()) != (attachment.job(), attachment.ranks()) {
            return Err(AttachError::BadPages("they are another job's").into());
        }
        channel.disclose(pages);
    }
    Ok(channel)
}

/// Information that the node's daemon discloses (SSS-CORE paper, §3.2).
/// This node is shown as it is now, others as they were some time ago, with the age. Reading makes no
/// system call.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'c> {
    context: &'c Context,
    pages: &'c DisclosedPages,
}

impl Context {
    /// The information of this rank's daemon. None without a daemon, or on a system that cannot share
    /// it.
    #[must_use]
    pub fn machine(&self) -> Option<Machine<'_>> {
        self.channel.disclosed().map(|pages| Machine { context: self, pages })
    }
}

impl Machine<'_> {
    /// Nodes of the cluster.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.pages.nodes()
    }

    /// How a node is; none if there is no such node, or nothing was heard of it yet.
    #[must_use]
    pub fn node(&self, node: u32) -> Option<NodeLoad> {
        self.pages.node(node)
    }

    /// The jobs on this node.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobLoad> {
        self.pages.jobs()
    }

    /// Whether the own job has this node's processors now, alone or with others.
    #[must_use]
    pub fn scheduled(&self) -> bool {
        self.pages.scheduled()
    }

    /// Activity of a rank of the own job: exact on this node, otherwise the last report of its node.
    /// None if there is no such rank.
    #[must_use]
    pub fn rank(&self, rank: u32) -> Option<RankReport> {
        let known = self.pages.rank(rank)?;
        match self.context.attachment().rank_state(rank) {
            Some(state) => Some(RankReport { state, age_us: Some(0), ..known }),
            None => Some(known),
        }
    }

    /// Whether a rank of the own job has a processor now, as far as this node can tell: all nodes of a
    /// job give it their processors in the same slots. None if there is no such rank.
    #[must_use]
    pub fn runs(&self, rank: u32) -> Option<bool> {
        let known = self.rank(rank)?;
        Some(known.state != RankState::Over && self.scheduled())
    }
}
