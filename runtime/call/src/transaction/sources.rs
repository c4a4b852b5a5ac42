//! Where the bytes are that a call reads, and what is to be done for those that are lost.

use kumi_broker::{Access, Node, ServerId, State};

use super::drive::Driver;
use super::prepare::{ArgumentUse, CLIENT, output_of, overlap};

/// Where bytes of a call's argument come from.
pub enum ByteSource {
    /// The client's memory.
    Here,
    /// The result of a call (its index), which a server holds.
    Held(usize, ServerId),
    /// The result of this call, which is lost.
    Lost(Node),
    /// The client's memory, where they were overwritten by what ran since.
    Overwritten,
}

/// What a call that could be started needs.
pub enum InputStatus {
    Nothing,
    /// The results of these calls, which are to run again.
    Again(Vec<Node>),
    /// What cannot be had again: whose result, and why.
    Lost(Node, String),
    /// What cannot be had again: it was the client's.
    Overwritten,
}

impl Driver<'_> {
    /// The way of some bytes of an array to a call at this server.
    pub fn way(&self, one: &ArgumentUse, bytes: &Access, from: Option<Node>) -> ByteSource {
        let Some(from) = from else {
            let range = (bytes.start, bytes.end);
            let gone = self.overwritten.iter().any(|it| overlap(*it, range));
            return if gone || self.is_being_written(range) {
                ByteSource::Overwritten
            } else {
                ByteSource::Here
            };
        };
        let Some(index) = output_of(&self.outputs, from, bytes) else {
            return ByteSource::Lost(from);
        };
        let output = &self.outputs[index];
        match output.held.filter(|_| one.simple) {
            Some((server, _)) => ByteSource::Held(index, server),
            None if one.is_client()
                && output.is_here(bytes)
                && !self.is_being_written((bytes.start, bytes.end)) =>
            {
                ByteSource::Here
            }
            None => ByteSource::Lost(from),
        }
    }

    /// Whether a call that runs writes these bytes of the client's memory.
    fn is_being_written(&self, range: (u64, u64)) -> bool {
        let written = |output: &usize| {
            let Access { buffer, start, end } = self.outputs[*output].access;
            buffer == CLIENT && overlap((start, end), range)
        };
        self.running.values().any(|running| running.brings.iter().any(written))
    }

    /// What a call needs before it can be started.
    pub fn needs(&self, node: Node) -> InputStatus {
        let mut again: Vec<Node> = Vec::new();
        for one in &self.calls[node.0 as usize].uses {
            for (bytes, from) in &one.inputs {
                match self.way(one, bytes, *from) {
                    ByteSource::Here | ByteSource::Held(..) => {}
                    ByteSource::Overwritten => return InputStatus::Overwritten,
                    ByteSource::Lost(maker) => match self.may_run_again(maker) {
                        Ok(()) if again.contains(&maker) => {}
                        Ok(()) => again.push(maker),
                        Err(why) => return InputStatus::Lost(maker, why),
                    },
                }
            }
        }
        if again.is_empty() { InputStatus::Nothing } else { InputStatus::Again(again) }
    }

    /// Whether a call that has ended may be run again.
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
            if matches!(self.way(one, bytes, *from), ByteSource::Overwritten) {
                return Err(format!("{lost}, and what it read was overwritten since"));
            }
        }
        Ok(())
    }

    /// Bytes of the client's memory get new contents.
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

    /// Lets go of results at servers that nobody reads any more.
    pub fn let_go(&mut self) {
        let over = |node: &Node| {
            let state = self.graph.state(*node);
            !matches!(state, Some(State::Waiting | State::Ready | State::Running))
        };
        for output in &mut self.outputs {
            if output.held.is_some() && output.readers.iter().all(over) {
                let Some((server, name)) = output.held.take() else { continue };
                if let Some(client) = &self.servers[server.0 as usize].client {
                    // If it cannot be told the connection is lost, and with it soon the array.
                    let _lost = client.let_go(&[name]);
                }
            }
        }
    }
}
