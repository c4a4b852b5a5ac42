//! Arrays that stay at the servers that a metaserver has chosen.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumi_rpc::{HeldArrayName, HeldArrayPart, HeldResult, InputLocation};

use crate::lent::{LendMut, LentBytesMut, bytes_of_mut};
use crate::{Arg, CallError, Client, KnownRoutine, Number, RemoteArray, locked};

/// How long an array stays unless it is released. The server may have a lower limit.
const LIFETIME: Duration = Duration::MAX;

/// Why an array is gone.
const CONNECTION_LOST: &str = "the connection to the server was lost";

/// The error of an array whose connection is lost.
fn connection_lost() -> CallError {
    CallError::NotHeld { text: CONNECTION_LOST.to_owned(), yet: false }
}

/// A reference to an array at a server that a metaserver has chosen: the result of a call, and an argument of later ones.
///
/// A call through the metaserver gets it as the place of a result ([`HeldArray::stays`]). Calls that have it as an argument
/// ([`HeldArray::argument`]) run at the server of the array, or fail. The server drops the array with its last reference, when
/// the connection to the server is lost, and after the time that the server allows.
///
/// ```no_run
/// use kumi_call_client::{Arg, Grid, HeldArray, Options};
///
/// let grid = Grid::connect("meta:7071", &Options::default())?;
/// let (a, b, mut d) = ([1.0; 4], [2.0; 4], [0.0; 4]);
/// let c = HeldArray::new();
/// grid.call("dmmul", vec![2.into(), a.as_slice().into(), b.as_slice().into(), c.stays()])?;
/// grid.call("dmmul", vec![2.into(), c.argument(), b.as_slice().into(), d.as_mut_slice().into()])?;
/// # Ok::<(), kumi_call_client::CallError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct HeldArray {
    stored: Arc<Mutex<Option<Arc<StoredArray>>>>,
}

/// Where an array is. The server drops the array with this.
#[derive(Debug)]
pub(crate) struct StoredArray {
    name: HeldArrayName,
    bytes: u64,
    server: String,
    address: String,
    client: Client,
    /// The random identity of the client of the metaserver.
    grid: u64,
    /// The result of which call it is, for errors.
    made_by: String,
}

impl Drop for StoredArray {
    fn drop(&mut self) {
        // With its connection the array goes by itself.
        let _lost = self.client.let_go(&[self.name]);
    }
}

impl HeldArray {
    /// A reference that no call has filled yet.
    #[must_use]
    pub fn new() -> HeldArray {
        HeldArray::default()
    }

    /// The array as an argument of a call, which then runs at its server.
    #[must_use]
    pub fn argument<'a>(&self) -> Arg<'a> {
        Arg::Remote(Box::new(RemoteArray::default().held_as(self)))
    }

    /// This reference as the place of a result. When the call has run, it is the result; what it was before is released.
    #[must_use]
    pub fn stays<'a>(&self) -> Arg<'a> {
        Arg::Remote(Box::new(RemoteArray::default().staying_as(self)))
    }

    /// Name and address of its server. `None`: no call has filled it, or it was released.
    #[must_use]
    pub fn server(&self) -> Option<(String, String)> {
        self.stored().map(|stored| (stored.server.clone(), stored.address.clone()))
    }

    /// Whether it is at no server, as far as the client knows without asking.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.stored().is_none_or(|stored| stored.client.is_lost())
    }

    /// Fetches numbers of the array, starting at byte `offset`.
    ///
    /// # Errors
    /// [`CallError`]: the array is not there any more, or it is shorter.
    pub fn fetch<T: Number>(&self, offset: u64, to: &mut [T]) -> Result<(), CallError> {
        self.fetch_bytes(offset, LentBytesMut::slice(bytes_of_mut(to)), None, &|| false)
    }

    /// [`HeldArray::fetch`] of bytes, with a time limit and until `interrupted`.
    ///
    /// # Errors
    /// [`CallError`]: as [`HeldArray::fetch`], or it does not arrive in time.
    pub fn fetch_bytes(
        &self,
        offset: u64,
        to: LentBytesMut,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let stored = self.stored().ok_or_else(|| {
            let text = "the reference is to no array: no call has filled it, or it was released";
            CallError::NotHeld { text: text.to_owned(), yet: false }
        })?;
        let fetched = stored.client.fetch_bytes(stored.name, offset, to, time, interrupted);
        fetched.map_err(|error| match error {
            CallError::NotHeld { .. } | CallError::Lost(_) => CallError::HeldLost {
                what: stored.to_string(),
                why: error.to_string(),
                has_not_run: true,
            },
            other => other,
        })
    }

    /// Releases the array, for all clones of this reference. Calls that have it as an argument keep it until they are over.
    pub fn release(&self) {
        // It is dropped without the lock.
        let _home = locked(&self.stored).take();
    }

    pub(crate) fn stored(&self) -> Option<Arc<StoredArray>> {
        locked(&self.stored).clone()
    }

    /// A call has made the array.
    pub(crate) fn fill(&self, stored: StoredArray) {
        let _before = locked(&self.stored).replace(Arc::new(stored));
    }
}

impl std::fmt::Display for StoredArray {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {} ({})", self.made_by, self.server, self.address)
    }
}

impl RemoteArray<'_> {
    /// The same, of which the value that is sent is this array.
    #[must_use]
    pub fn held_as(self, held: &HeldArray) -> Self {
        RemoteArray { held: Some(held.clone()), ..self }
    }

    /// The same, of which the result stays as this array.
    #[must_use]
    pub fn staying_as(self, held: &HeldArray) -> Self {
        RemoteArray { stays: Some(held.clone()), ..self }
    }
}

/// The arrays at servers that a call reads, by parameter. All are at one server.
#[derive(Debug)]
pub(crate) struct BoundArguments {
    /// Not empty.
    stored_arrays: Vec<(String, Arc<StoredArray>)>,
    /// The metaserver has said that the server is gone.
    pub is_gone: bool,
}

/// The results of a call that stay at its server, by parameter.
pub(crate) type StayingResults = Vec<(u16, HeldArray)>;

/// The references among the arguments of a call, as the protocol has them: the arrays that it reads, and the results that stay.
/// Names of results are chosen for each attempt.
///
/// # Errors
/// [`CallError::HeldLost`], [`CallError::HeldElsewhere`]: the arrays are gone, or at several servers.
pub(crate) fn resolve(
    grid: u64,
    known: &KnownRoutine,
    args: &mut [Arg<'_>],
) -> Result<(Option<BoundArguments>, StayingResults), CallError> {
    let (mut stored_arrays, mut kept) = (Vec::new(), StayingResults::new());
    let params = known.params.iter().enumerate().filter(|(_, param)| crate::is_given(param));
    for ((index, param), arg) in params.zip(args) {
        let Arg::Remote(array) = arg else { continue };
        if let Some(held) = array.held.take() {
            let lost = |what: String, why: &str| CallError::HeldLost {
                what: format!("`{}`: `{}` is {what}", known.name, param.name),
                why: why.to_owned(),
                has_not_run: true,
            };
            let Some(stored) = held.stored() else {
                let why = "no call has filled it, or it was released";
                return Err(lost("a reference to no array".to_owned(), why));
            };
            if stored.grid != grid {
                return Err(CallError::HeldElsewhere(format!(
                    "`{}`: `{}` is {stored}, of another connection to a metaserver: fetch it, or call there",
                    known.name, param.name
                )));
            }
            if stored.client.is_lost() {
                return Err(lost(stored.to_string(), CONNECTION_LOST));
            }
            array.parts = vec![HeldArrayPart::whole(stored.name, stored.bytes, "")];
            stored_arrays.push((param.name.clone(), stored));
        }
        if let Some(stays) = array.stays.take() {
            let name = HeldArrayName { secret: [0; 16], index: 0 };
            array.keep = RemoteArray::stays(name, LIFETIME).keep;
            // A description has at most 256 parameters.
            kept.push((index as u16, stays));
        }
    }
    Ok((BoundArguments::new(&known.name, stored_arrays)?, kept))
}

/// Why arrays do not fit into one call.
fn apart(what: &str, is_one_server: bool) -> String {
    match is_one_server {
        // It has made the client connect anew, and has kept the connection.
        true => format!(
            "{what}, over another connection to it: a call has arrays of one connection; fetch one of them"
        ),
        false => format!("{what}: a call has arrays of one server; fetch one of them"),
    }
}

impl BoundArguments {
    fn new(
        routine: &str,
        stored_arrays: Vec<(String, Arc<StoredArray>)>,
    ) -> Result<Option<BoundArguments>, CallError> {
        let Some(((name, first), others)) = stored_arrays.split_first() else { return Ok(None) };
        let elsewhere = others.iter().find(|(_, stored)| !stored.is_with(first));
        if let Some((other, stored)) = elsewhere {
            let what = format!("`{routine}`: `{name}` is {first}, and `{other}` is {stored}");
            return Err(CallError::HeldElsewhere(apart(&what, first.address == stored.address)));
        }
        Ok(Some(BoundArguments { stored_arrays, is_gone: false }))
    }

    fn stored(&self) -> &StoredArray {
        &self.stored_arrays[0].1
    }

    /// The connection to the server of the arrays.
    ///
    /// # Errors
    /// It is lost, and the arrays with it. Nothing was sent.
    pub fn client(&self) -> Result<Client, CallError> {
        let client = &self.stored().client;
        if client.is_lost() { Err(connection_lost()) } else { Ok(client.clone()) }
    }

    /// The connection to the server of the arrays, lost or not.
    pub fn connection(&self) -> &Client {
        &self.stored().client
    }

    /// Where the call has to run.
    pub fn location(&self) -> InputLocation {
        let (server, address) = (self.stored().server.clone(), self.stored().address.clone());
        InputLocation { server, address, bytes: self.bytes() }
    }

    /// The address that tells the server from others.
    pub fn address(&self) -> String {
        self.stored().address.clone()
    }

    /// The bytes that are not sent.
    pub fn bytes(&self) -> u64 {
        self.stored_arrays.iter().fold(0, |sum, (_, stored)| sum.saturating_add(stored.bytes))
    }

    /// The error of a call whose arrays are gone.
    pub fn lost(&self, routine: &str, why: String, has_not_run: bool) -> CallError {
        let each = |(name, stored): &(String, Arc<StoredArray>)| format!("`{name}` is {stored}");
        let stored_arrays: Vec<String> = self.stored_arrays.iter().map(each).collect();
        CallError::HeldLost {
            what: format!("`{routine}`: {}", stored_arrays.join(", ")),
            why,
            has_not_run,
        }
    }
}

impl StoredArray {
    pub fn new(
        (name, bytes): (HeldArrayName, u64),
        (server, address): (&str, &str),
        (client, grid): (Client, u64),
        made_by: String,
    ) -> StoredArray {
        let (server, address) = (server.to_owned(), address.to_owned());
        StoredArray { name, bytes, server, address, client, grid, made_by }
    }

    /// Whether another array is at the same server, on the same connection.
    fn is_with(&self, other: &StoredArray) -> bool {
        self.address == other.address && Arc::ptr_eq(&self.client.link, &other.client.link)
    }
}

/// The name of a result that stays, in the head of a call.
pub(crate) fn rename(keep: &mut [(u16, HeldResult)], parameter: u16, name: HeldArrayName) {
    for (_, result) in keep.iter_mut().filter(|(of, _)| *of == parameter) {
        result.name = name;
    }
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn one_server_over_two_connections_is_told_from_two_servers() {
        let one = apart("`f`: …", true);
        assert!(one.starts_with("`f`: …, over another connection to it: "), "{one}");
        assert!(!one.contains("one server"), "{one}");
        assert!(apart("`f`: …", false).contains("arrays of one server; fetch one of them"));
    }
}
