//! Preparation of a transaction: checks arguments and turns recorded calls into a graph of dependencies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kumi_broker::{Access, BufferId, Graph, Node, RecordedCall, ServerId};
use kumi_idl::{Argument, ArgumentForm, Element, Mode, Plan, Type};
use kumi_rpc::{HeldArrayName, HeldArrayPart};

use super::{Data, Memory, Transaction, TransactionError, TxArg};
use crate::lent::{Lend, LendMut, LentBytes, LentBytesMut};
use crate::values::{self, GivenValues};
use crate::{Arg, Array, ArrayMut, KnownRoutine, RemoteArray, Shape, check, is_given};

/// The client's memory as a buffer of the graph; offsets are addresses.
pub const CLIENT: BufferId = BufferId(0);

/// An array argument of a call.
#[derive(Debug)]
pub struct ArgumentUse {
    pub parameter: usize,
    pub data: Data,
    /// The bytes that it reads or writes. Bytes of the caller's memory have their addresses.
    pub access: Access,
    pub reads: bool,
    pub writes: bool,
    /// The array travels as one piece of memory in the same order.
    pub simple: bool,
    /// The parts that it reads, and the call that makes each.
    pub inputs: Vec<(Access, Option<Node>)>,
}

impl ArgumentUse {
    pub fn is_client(&self) -> bool {
        self.access.buffer == CLIENT
    }

    /// Arrays that cannot be received in parts read the whole of what other calls have made.
    fn read_access(&self) -> Option<Access> {
        (self.reads || self.writes && !self.simple).then_some(self.access)
    }
}

/// A call that is ready to run.
#[derive(Debug)]
pub struct PreparedCall {
    /// Its routine.
    pub known: Arc<KnownRoutine>,
    pub plan: Plan,
    /// Parameters that take an argument.
    pub given: Vec<usize>,
    pub uses: Vec<ArgumentUse>,
}

/// An array that a call makes.
#[derive(Debug)]
pub struct Output {
    pub node: Node,
    pub parameter: usize,
    pub access: Access,
    /// It is to come to the client.
    pub wanted: bool,
    /// Calls that read it from servers.
    pub readers: Vec<Node>,
    /// The server that holds it, and its name there.
    pub held: Option<(ServerId, HeldArrayName)>,
    /// It has come to the client's memory; the ranges that were overwritten there since.
    pub here: Option<Vec<(u64, u64)>>,
}

/// Whether two ranges overlap.
pub fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

impl Output {
    /// Whether these bytes of it are in the client's memory.
    pub fn is_here(&self, bytes: &Access) -> bool {
        let whole =
            |gone: &Vec<(u64, u64)>| !gone.iter().any(|it| overlap(*it, (bytes.start, bytes.end)));
        self.here.as_ref().is_some_and(whole)
    }
}

/// Everything that is known before a call runs.
pub struct Plans {
    pub graph: Graph,
    pub calls: Vec<PreparedCall>,
    pub outputs: Vec<Output>,
}

/// Checks all calls and finds their dependencies. `describe` is asked for each.
pub fn prepare(
    tx: &Transaction<'_>,
    mut describe: impl FnMut(&str) -> Result<Arc<KnownRoutine>, crate::CallError>,
) -> Result<Plans, TransactionError> {
    let mut graph = Graph::new();
    let mut calls = Vec::new();
    let mut sizes = HashMap::new();
    for (step, call) in (0..).zip(&tx.calls) {
        let known =
            describe(&call.routine).map_err(|source| TransactionError::Call { step, source })?;
        let wrong =
            |text: String| TransactionError::Argument { step, routine: call.routine.clone(), text };
        let mut prepared = one(tx, &known, &call.args, &mut sizes).map_err(wrong)?;
        record(&mut graph, &mut prepared)?;
        calls.push(prepared);
    }
    let outputs = outputs(&graph, &calls);
    Ok(Plans { graph, calls, outputs })
}

/// Bytes and elements of intermediate arrays.
type Sizes = HashMap<usize, (u64, Element)>;

fn one(
    tx: &Transaction<'_>,
    known: &Arc<KnownRoutine>,
    args: &[TxArg],
    sizes: &mut Sizes,
) -> Result<PreparedCall, String> {
    let params = &known.params;
    let given: Vec<usize> = (0..params.len()).filter(|index| is_given(&params[*index])).collect();
    let mut values = GivenValues::nothing(known);
    for (index, arg) in given.iter().zip(args) {
        match arg {
            TxArg::Scalar(scalar) if params[*index].scalar().is_some() => {
                values.scalars[*index] = Some(*scalar);
            }
            TxArg::Text(text) if params[*index].ty == Type::String => {
                values.texts[*index] = Some(text.clone());
            }
            _ => {}
        }
    }
    // The check below reports a wrong number of arguments.
    let mut plan = None;
    if args.len() == given.len() && values.fill_texts(known).is_ok() {
        plan = values::plan(known, &values, u64::MAX).ok();
    }
    let mut uses = Vec::new();
    let mut checked = Vec::new();
    for (position, arg) in args.iter().enumerate() {
        let parameter = given.get(position).copied();
        checked.push(match (arg, parameter) {
            (TxArg::Data(_) | TxArg::InOut(..), Some(parameter)) => {
                let argument = plan.as_ref().map(|plan| &plan.arguments[parameter]);
                match argument.filter(|argument| matches!(argument.form, ArgumentForm::Array(..))) {
                    Some(argument) => {
                        let told = |text| format!("`{}` {text}", params[parameter].name);
                        let own = arrays(tx, arg, parameter, argument, sizes).map_err(told)?;
                        let arg = rehearsal(tx, &own, argument);
                        uses.extend(own);
                        arg
                    }
                    None => Arg::Default,
                }
            }
            (TxArg::Data(_) | TxArg::InOut(..) | TxArg::Default, _) => Arg::Default,
            (TxArg::Scalar(scalar), _) => Arg::Scalar(*scalar),
            (TxArg::Text(text), _) => Arg::Text(text.as_str().into()),
        });
    }
    let (checked, _functions) = check(known, checked, u64::MAX).map_err(|error| match error {
        crate::CallError::Argument { text, .. } => text,
        other => other.to_string(),
    })?;
    Ok(PreparedCall { known: Arc::clone(known), plan: checked.plan, given, uses })
}

/// The array of an argument; or the array that is sent and the array that receives the result.
fn arrays(
    tx: &Transaction<'_>,
    arg: &TxArg,
    parameter: usize,
    argument: &Argument,
    sizes: &mut Sizes,
) -> Result<Vec<ArgumentUse>, String> {
    let (from, to) = match arg {
        TxArg::InOut(from, to) => (*from, *to),
        TxArg::Data(data) => return Ok(vec![used(tx, *data, parameter, argument, sizes)?]),
        _ => return Ok(Vec::new()),
    };
    if argument.mode != Mode::InOut {
        return Err("is not both sent and returned: pass one array".to_owned());
    }
    let sent = Argument { mode: Mode::In, ..argument.clone() };
    let back = Argument { mode: Mode::Out, ..argument.clone() };
    let sent = used(tx, from, parameter, &sent, sizes)?;
    let mut both = vec![sent, used(tx, to, parameter, &back, sizes)?];
    if both.iter().any(|one| !one.simple) {
        // An array that does not travel in one piece goes through the client's memory.
        if !both.iter().all(ArgumentUse::is_client) {
            let text = "travels in pieces or in another order, which an intermediate array cannot";
            return Err(text.to_owned());
        }
        both.iter_mut().for_each(|one| one.simple = false);
    }
    Ok(both)
}

/// The bytes that an argument reads or writes.
fn used(
    tx: &Transaction<'_>,
    data: Data,
    parameter: usize,
    argument: &Argument,
    sizes: &mut Sizes,
) -> Result<ArgumentUse, String> {
    let (reads, writes) = (argument.mode.is_sent(), argument.mode.is_returned());
    let datum = tx.data.get(data.index).ok_or("is an array of another transaction")?;
    let shared = |access, simple| ArgumentUse {
        parameter,
        data,
        access,
        reads,
        writes,
        simple,
        inputs: Vec::new(),
    };
    match &datum.memory {
        Memory::Intermediate => {
            let access = intermediate(data, argument, sizes)?;
            return Ok(shared(access, true));
        }
        Memory::Read(_) if writes => {
            return Err("is written; lend it to the transaction as an array".to_owned());
        }
        Memory::Read(_) | Memory::Write(_) => {}
    }
    let (shape, lent) = memory(tx, data).ok_or("has fewer elements than the part of it")?;
    let start = lent.address();
    let whole = Access { buffer: CLIENT, start, end: start + lent.length() as u64 };
    let flips = shape.dims.is_some() && !same_order(argument, &shape);
    match argument.section.single() {
        Some(run) if !flips && run.offset + run.length <= lent.length() as u64 => {
            let start = start + run.offset;
            Ok(shared(Access { start, end: start + run.length, ..whole }, true))
        }
        _ => Ok(shared(whole, false)),
    }
}

fn same_order(argument: &Argument, shape: &Shape) -> bool {
    let ArgumentForm::Array(_, order) = argument.form else { return true };
    let thick = argument.axes.iter().filter(|axis| axis.size > 1).count();
    thick <= 1 || shape.order == order
}

fn intermediate(data: Data, argument: &Argument, sizes: &mut Sizes) -> Result<Access, String> {
    let ArgumentForm::Array(element, _) = argument.form else {
        return Err("is no array".to_owned());
    };
    let buffer = BufferId(data.index as u64 + 1);
    let known = sizes.get(&data.index).copied();
    if argument.mode == Mode::Out {
        if data.part.is_some() {
            return Err(
                "is a part of an intermediate array, which can only be written whole".to_owned()
            );
        }
        if known.is_some_and(|known| known != (argument.returned, element)) {
            return Err("is an intermediate array that has another size or type already".to_owned());
        }
        sizes.insert(data.index, (argument.returned, element));
        return Ok(Access { buffer, start: 0, end: argument.returned });
    }
    let (bytes, made) = known.ok_or("is an intermediate array that no earlier call makes")?;
    if made != element {
        return Err(format!("has elements of {made}, the routine wants {element}"));
    }
    let size = element.size();
    let (first, last) = data.part.unwrap_or((0, bytes / size));
    let (start, end) = (first.saturating_mul(size), last.saturating_mul(size));
    if end > bytes || start > end || end - start != argument.sent {
        let (has, wants) = (end.min(bytes).saturating_sub(start) / size, argument.sent / size);
        return Err(format!("has {has} elements, the routine wants {wants}"));
    }
    Ok(Access { buffer, start, end })
}

/// The caller's memory of an array or a part of it. `None`: servers hold it, or the part is out of range.
pub fn memory(tx: &Transaction<'_>, data: Data) -> Option<(Shape, LentBytes)> {
    let datum = tx.data.get(data.index)?;
    let shape = datum.shape.clone()?;
    let lent = match &datum.memory {
        Memory::Read(lent) => *lent,
        Memory::Write(lent) => lent.as_lent(),
        Memory::Intermediate => return None,
    };
    let Some((first, last)) = data.part else { return Some((shape, lent)) };
    let size = shape.element.size();
    let (start, end) = (first.checked_mul(size)?, last.checked_mul(size)?);
    if start > end || end > lent.length() as u64 {
        return None;
    }
    // The array is in memory, so its size fits `usize`.
    Some((Shape { dims: None, ..shape }, lent.part(start as usize, (end - start) as usize)))
}

/// The caller's memory of an array, for writing.
pub fn memory_mut(tx: &Transaction<'_>, data: Data) -> Option<(Shape, LentBytesMut)> {
    let (shape, read) = memory(tx, data)?;
    let Memory::Write(lent) = &tx.data.get(data.index)?.memory else { return None };
    let start = read.address() - lent.as_lent().address();
    Some((shape, lent.part(usize::try_from(start).ok()?, read.length())))
}

/// An argument for the check.
fn rehearsal(tx: &Transaction<'_>, own: &[ArgumentUse], argument: &Argument) -> Arg<'static> {
    let mut array = whole(tx, own);
    let name = HeldArrayName { secret: [0; 16], index: 0 };
    for one in own.iter().filter(|one| !one.is_client()) {
        if one.reads && argument.sent > 0 {
            array.parts.push(HeldArrayPart::whole(name, argument.sent, ""));
        }
        if one.writes {
            array.keep = RemoteArray::stays(name, Duration::ZERO).keep;
        }
    }
    Arg::Remote(Box::new(array))
}

/// An argument for which only the caller's memory is used.
pub fn whole(tx: &Transaction<'_>, own: &[ArgumentUse]) -> RemoteArray<'static> {
    let mut array = RemoteArray::default();
    for one in own {
        if one.reads {
            array.from = memory(tx, one.data).map(|(shape, lent)| Array::lent(lent, shape));
        }
        if one.writes {
            array.to = memory_mut(tx, one.data).map(|(shape, lent)| ArrayMut::lent(lent, shape));
        }
    }
    array
}

/// Adds a call to the graph, and links its arrays to the calls that make their inputs.
fn record(graph: &mut Graph, call: &mut PreparedCall) -> Result<(), TransactionError> {
    let reads: Vec<Access> = call.uses.iter().filter_map(ArgumentUse::read_access).collect();
    let writes = call.uses.iter().filter(|one| one.writes).map(|one| one.access).collect();
    let recorded = RecordedCall { name: call.known.name.clone(), reads, writes };
    let node = graph.record(&recorded)?;
    let mut inputs = graph.inputs(node).iter();
    for one in &mut call.uses {
        let Some(access) = one.read_access() else { continue };
        let mut left = access.end - access.start;
        while left > 0 {
            let Some(input) = inputs.next() else { break };
            left -= input.bytes.end - input.bytes.start;
            one.inputs.push((input.bytes, input.from));
        }
    }
    Ok(())
}

/// The output of a call that contains these bytes.
pub fn output_of(outputs: &[Output], node: Node, bytes: &Access) -> Option<usize> {
    let holds = |output: &Output| {
        let Access { buffer, start, end } = output.access;
        output.node == node && buffer == bytes.buffer && start <= bytes.start && bytes.end <= end
    };
    outputs.iter().position(holds)
}

/// Finds which results the client wants, and which calls read them.
fn outputs(graph: &Graph, calls: &[PreparedCall]) -> Vec<Output> {
    let mut outputs = Vec::new();
    for (node, call) in graph.nodes().zip(calls) {
        for one in call.uses.iter().filter(|one| one.writes) {
            outputs.push(Output {
                node,
                parameter: one.parameter,
                access: one.access,
                wanted: one.is_client() && !one.simple,
                readers: Vec::new(),
                held: None,
                here: None,
            });
        }
    }
    for (bytes, node) in graph.last_writers() {
        if let Some(index) = output_of(&outputs, node, &bytes) {
            outputs[index].wanted |= bytes.buffer == CLIENT;
        }
    }
    for (node, call) in graph.nodes().zip(calls) {
        for one in &call.uses {
            for (bytes, from) in &one.inputs {
                let Some(index) = from.and_then(|from| output_of(&outputs, from, bytes)) else {
                    continue;
                };
                // An array that cannot be sent in one piece is sent from the client's memory.
                if one.simple {
                    outputs[index].readers.push(node);
                } else {
                    outputs[index].wanted = true;
                }
            }
        }
    }
    for output in &mut outputs {
        // Nobody reads it, but the routine makes it.
        output.wanted |= output.readers.is_empty() && output.access.buffer == CLIENT;
    }
    outputs
}
