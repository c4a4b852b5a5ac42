//! Arguments of a call that is about to start, from the client and from servers.

use std::sync::Arc;

use kumi_broker::{Access, CallId, Node, ServerId};
use kumi_idl::Argument;
use kumi_rpc::{HeldArrayPart, HeldResult, VoucherSupport};

use super::TxArg;
use super::attempt::{Attempt, Delivery, Fetch, Relay};
use super::drive::{Driver, RunningCall};
use super::prepare::{self, ArgumentUse, PreparedCall, memory, memory_mut, overlap};
use super::report::MovedBytes;
use super::sources::ByteSource;
use crate::context::InheritedContext;
use crate::lent::{Lend, LendMut, LentBytesMut};
use crate::{Arg, Array, ArrayMut, Client, RemoteArray, Shape};

/// Most vouchers of a call; many more would not fit into its head.
const MOST_VOUCHERS: usize = 100;

fn wants_vouchers(holder: &Client) -> bool {
    holder.server.vouchers == VoucherSupport::Wanted
}

impl Driver<'_> {
    /// Prepares an attempt at a server. All inputs of the call exist.
    pub fn place(
        &mut self,
        node: Node,
        call: CallId,
        number: u32,
        (server, client): (ServerId, Client),
    ) -> (Attempt, RunningCall) {
        let tx = self.tx;
        let recorded = &tx.calls[node.0 as usize];
        let mut attempt = Attempt {
            call,
            number,
            client: Client { resources: recorded.resources, ..client },
            known: Arc::clone(&self.calls[node.0 as usize].known),
            routed_call: self.chooser.lend(call),
            args: Vec::new(),
            relays: Vec::new(),
            deliveries: Vec::new(),
            holders: Vec::new(),
            vouchers: Vec::new(),
            held: self.options.held,
            cancel: Arc::default(),
            time: recorded.time.or(self.options.time),
            context: InheritedContext::of_this_thread(),
        };
        let mut running = RunningCall {
            node,
            server,
            cancel: Arc::clone(&attempt.cancel),
            is_placed: attempt.routed_call.is_some(),
            alone: false,
            kept: Vec::new(),
            returned: Vec::new(),
            direct: Vec::new(),
            helped: None,
            moved: MovedBytes::default(),
        };
        let given = self.calls[node.0 as usize].given.clone();
        for (position, parameter) in given.into_iter().enumerate() {
            let arg = match &recorded.args[position] {
                TxArg::Default => Arg::Default,
                TxArg::Scalar(scalar) => Arg::Scalar(*scalar),
                TxArg::Text(text) => Arg::Text(text.clone().into()),
                TxArg::Data(_) | TxArg::InOut(..) => {
                    self.array(parameter, &mut attempt, &mut running)
                }
            };
            attempt.args.push(arg);
        }
        let MovedBytes { between, stayed, .. } = running.moved;
        running.alone = attempt.relays.is_empty() && between + stayed == 0;
        (attempt, running)
    }

    fn array(
        &mut self,
        parameter: usize,
        attempt: &mut Attempt,
        running: &mut RunningCall,
    ) -> Arg<'static> {
        let node = running.node;
        let call: &PreparedCall = &self.calls[node.0 as usize];
        let argument = call.plan.arguments[parameter].clone();
        let own: Vec<usize> =
            (0..call.uses.len()).filter(|at| call.uses[*at].parameter == parameter).collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else { return Arg::Default };
        let (read, written) = (*first, *last);
        let output =
            self.outputs.iter().position(|it| it.node == node && it.parameter == parameter);
        let one = &call.uses[read];
        if !one.simple {
            running.moved.sent += argument.sent;
            running.moved.received += argument.returned;
            let array = prepare::whole(self.tx, &call.uses[read..=written]);
            if let Some(output) = output {
                running.returned.push(output);
                running.direct.push(call.uses[written].access);
            }
            return Arg::Remote(Box::new(array));
        }
        let mut array = self.source(one, &argument, attempt, running);
        if let Some(output) = output {
            self.target(written, output, &mut array, attempt, running);
        }
        Arg::Remote(Box::new(array))
    }

    /// Prepares an array that is sent.
    fn source(
        &self,
        one: &ArgumentUse,
        argument: &Argument,
        attempt: &mut Attempt,
        running: &mut RunningCall,
    ) -> RemoteArray<'static> {
        let mut array = RemoteArray::default();
        if !one.reads {
            return array;
        }
        let mut fetches = Vec::new();
        let mut gaps = Vec::new();
        for (bytes, from) in &one.inputs {
            let (offset, length) = (bytes.start - one.access.start, bytes.end - bytes.start);
            let ByteSource::HeldResult(output, holder) = self.source_of(one, bytes, *from) else {
                running.moved.sent += length;
                gaps.push((offset, length));
                continue;
            };
            let output = &self.outputs[output];
            let Some((_, name)) = output.held else { continue };
            let from = bytes.start - output.access.start;
            // The attempt's thread gets the voucher, if one is needed.
            let part = |server: &str| HeldArrayPart {
                offset,
                from,
                ..HeldArrayPart::whole(name, length, server)
            };
            let at = &self.servers[holder.0 as usize];
            attempt.holders.extend(at.client.clone().map(|client| (client, holder, name)));
            if holder == running.server {
                running.moved.stayed += length;
                array.parts.push(part(""));
            } else if let Some(why) = self.relays(running, holder, attempt.vouchers.len())
                && let Some(client) = &at.client
            {
                running.helped.get_or_insert(why);
                running.moved.received += length;
                running.moved.sent += length;
                fetches.push((client.clone(), name, from, offset, length));
            } else {
                let wanted = at.client.clone().filter(wants_vouchers);
                let is_new = attempt.vouchers.iter().all(|(.., known)| *known != name);
                let voucher = wanted.map(|client| (client, at.address.clone(), name));
                attempt.vouchers.extend(voucher.filter(|_| is_new));
                running.moved.between += length;
                array.parts.push(part(&at.address));
            }
        }
        self.fill(&mut array, one, argument, (fetches, gaps), &mut attempt.relays);
        array
    }

    /// Source of the bytes that no server sends: the caller's memory, or a buffer into which the client
    /// fetches the rest.
    fn fill(
        &self,
        array: &mut RemoteArray<'static>,
        one: &ArgumentUse,
        argument: &Argument,
        (fetches, gaps): (Vec<Fetch>, Vec<(u64, u64)>),
        relays: &mut Vec<Relay>,
    ) {
        let own = memory(self.tx, one.data);
        if fetches.is_empty() {
            array.from =
                own.filter(|_| !gaps.is_empty()).map(|(shape, lent)| Array::lent(lent, shape));
            return;
        }
        let from = own.map(|(_, lent)| {
            lent.part((one.access.start - lent.address()) as usize, argument.sent as usize)
        });
        let mut relay = Relay::new(argument.clone(), fetches);
        relay.gaps = from.map(|from| (from, gaps));
        if let kumi_idl::ArgumentForm::Array(element, order) = argument.form {
            let shape = Shape { element, dims: None, order };
            array.from = Some(Array::lent(relay.memory(), shape));
        }
        relays.push(relay);
    }

    /// Why the client must relay a server's array for this call. `None`: it need not.
    fn relays(&self, running: &RunningCall, holder: ServerId, vouchers: usize) -> Option<String> {
        let reader = running.server;
        let why =
            self.relayed.get(&running.node).or_else(|| self.unreachable.get(&(reader, holder)));
        if why.is_some() {
            return why.cloned();
        }
        let client = |server: ServerId| self.servers[server.0 as usize].client.as_ref();
        client(holder).filter(|holder| wants_vouchers(holder))?;
        let address = &self.servers[reader.0 as usize].address;
        if client(reader).is_some_and(|reader| reader.server.vouchers == VoucherSupport::Unknown) {
            return Some(format!("{address} is of a version that shows no vouchers to others"));
        }
        let is_full = vouchers >= MOST_VOUCHERS;
        is_full.then(|| format!("{address} can be given {MOST_VOUCHERS} vouchers with a call"))
    }

    /// Destination of a result: the client, or a name at the server.
    fn target(
        &mut self,
        index: usize,
        output: usize,
        array: &mut RemoteArray<'static>,
        attempt: &mut Attempt,
        running: &mut RunningCall,
    ) {
        let over = |graph: &kumi_broker::Graph, node: &Node| {
            use kumi_broker::State::{Ready, Running, Waiting};
            !matches!(graph.state(*node), Some(Waiting | Ready | Running))
        };
        let made = &self.outputs[output];
        let returned = made.wanted && made.here.is_none();
        let read = made.readers.iter().any(|reader| !over(&self.graph, reader));
        let bytes = made.access.end - made.access.start;
        if read || !returned {
            let name = self.names.fresh();
            let lifetime_ms = u32::try_from(self.options.held.as_millis()).unwrap_or(u32::MAX);
            array.keep = Some(HeldResult { name, lifetime_ms, sent: returned, survives: false });
            running.kept.push((output, name));
        }
        if !returned {
            return;
        }
        running.moved.received += bytes;
        running.returned.push(output);
        let call = &self.calls[running.node.0 as usize];
        let one = &call.uses[index];
        let Some((shape, lent)) = memory_mut(self.tx, one.data) else { return };
        // If the connection breaks while results arrive, the arguments must be intact for the next attempt.
        if call.known.idempotent && sends_from(call, &one.access) {
            let start = (one.access.start - lent.as_lent().address()) as usize;
            let delivery = Delivery::new(lent, start..start + bytes as usize);
            array.to = Some(ArrayMut::lent(delivery.memory(), shape));
            attempt.deliveries.push(delivery);
        } else {
            array.to = Some(ArrayMut::lent(lent, shape));
            running.direct.push(one.access);
        }
    }
}

/// Whether a call reads these bytes of the client's memory.
fn sends_from(call: &PreparedCall, bytes: &Access) -> bool {
    let range = (bytes.start, bytes.end);
    let same = |one: &&ArgumentUse| one.is_client() && one.reads;
    call.uses.iter().filter(same).any(|one| overlap((one.access.start, one.access.end), range))
}

/// A buffer for a result that must not go to its place yet.
pub fn buffer(length: usize) -> (Box<[u8]>, LentBytesMut) {
    let mut bytes = vec![0; length].into_boxed_slice();
    let lent = LentBytesMut::slice(&mut bytes);
    (bytes, lent)
}
