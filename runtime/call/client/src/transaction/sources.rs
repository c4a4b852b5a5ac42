//! Sources of the bytes that a call reads, and recovery of lost ones.

use kumi_broker::{Access, Node, ServerId, State};

use super::drive::Driver;
use super::prepare::{ArgumentUse, CLIENT, output_of, overlap};

/// Source of some bytes of an argument.
pub enum ByteSource {
    /// The client's memory.
    Client,
    /// The result with this index, which a server holds.
    HeldResult(usize, ServerId),
    /// The lost result of this call.
    LostResult(Node),
    /// The client's memory, where later calls overwrote the bytes.
    Overwritten,
}

/// Whether the inputs of a call exist.
pub enum InputStatus {
    Complete,
    /// The results of these calls are lost; the calls can run again.
    Repeat(Vec<Node>),
    /// The result of this call is lost for good, for this reason.
    LostResult(Node, String),
    /// The client's own bytes are overwritten, and so lost for good.
    Overwritten,
}

impl Driver<'_> {
    /// The source of some bytes of an array for a call.
    pub fn source_of(&self, one: &ArgumentUse, bytes: &Access, from: Option<Node>) -> ByteSource {
        let Some(from) = from else {
            let range = (bytes.start, bytes.end);
            let gone = self.overwritten.iter().any(|it| overlap(*it, range));
            return if gone || self.is_being_written(range) {
                ByteSource::Overwritten
            } else {
                ByteSource::Client
            };
        };
        let Some(index) = output_of(&self.outputs, from, bytes) else {
            return ByteSource::LostResult(from);
        };
        let output = &self.outputs[index];
        match output.held.filter(|_| one.simple) {
            Some((server, _)) => ByteSource::HeldResult(index, server),
            None if one.is_client()
                && output.is_here(bytes)
                && !self.is_being_written((bytes.start, bytes.end)) =>
            {
                ByteSource::Client
            }
            None => ByteSource::LostResult(from),
        }
    }

    /// Whether a running call writes these bytes of the client's memory.
    fn is_being_written(&self, range: (u64, u64)) -> bool {
        let written = |output: &usize| {
            let Access { buffer, start, end } = self.outputs[*output].access;
            buffer == CLIENT && overlap((start, end), range)
        };
        self.running.values().any(|running| running.returned.iter().any(written))
    }

    /// Checks the inputs of a call.
    pub fn needs(&self, node: Node) -> InputStatus {
        let mut again: Vec<Node> = Vec::new();
        for one in &self.calls[node.0 as usize].uses {
            for (bytes, from) in &one.inputs {
                match self.source_of(one, bytes, *from) {
                    ByteSource::Client | ByteSource::HeldResult(..) => {}
                    ByteSource::Overwritten => return InputStatus::Overwritten,
                    ByteSource::LostResult(maker) => match self.may_run_again(maker) {
                        Ok(()) if again.contains(&maker) => {}
                        Ok(()) => again.push(maker),
                        Err(why) => return InputStatus::LostResult(maker, why),
                    },
                }
            }
        }
        if again.is_empty() { InputStatus::Complete } else { InputStatus::Repeat(again) }
    }

    /// Whether a finished call may run again.
    fn may_run_again(&self, node: Node) -> Result<(), String> {
        let call = &self.calls[node.0 as usize];
        let step = &self.report[node.0 as usize];
        let server = step.server.as_deref().unwrap_or("a server");
        let lost = format!("its result was lost with {server}");
        if !call.known.idempotent {
            return Err(format!("{lost}, and it is not marked as one that may run twice"));
        }
        if step.attempts >= self.options.attempts {
            return Err(format!("{lost}, and it was tried {} times", step.attempts));
        }
        let scattered = |one: &ArgumentUse| one.writes && !one.simple;
        if call.uses.iter().any(scattered) {
            return Err(format!("{lost}, and another result of it would be written a second time"));
        }
        let inputs = call.uses.iter().flat_map(|one| one.inputs.iter().map(move |it| (one, it)));
        for (one, (bytes, from)) in inputs {
            if matches!(self.source_of(one, bytes, *from), ByteSource::Overwritten) {
                return Err(format!("{lost}, and what it read was overwritten since"));
            }
        }
        Ok(())
    }

    /// Notes that bytes of the client's memory are overwritten.
    pub fn overwrite(&mut self, node: Node, access: &Access) {
        let range = (access.start, access.end);
        self.overwritten.push(range);
        for output in &mut self.outputs {
            if output.node != node
                && overlap((output.access.start, output.access.end), range)
                && let Some(gone) = &mut output.here
            {
                gone.push(range);
            }
        }
    }

    /// Drops results at servers that nobody reads any more.
    pub fn let_go(&mut self) {
        let over = |node: &Node| {
            let state = self.graph.state(*node);
            !matches!(state, Some(State::Waiting | State::Ready | State::Running))
        };
        for output in &mut self.outputs {
            if output.held.is_some() && output.readers.iter().all(over) {
                let Some((server, name)) = output.held.take() else { continue };
                if let Some(client) = &self.servers[server.0 as usize].client {
                    // If this cannot be sent, the connection is lost, and soon the array with it.
                    let _lost = client.let_go(&[name]);
                }
            }
        }
    }
}
