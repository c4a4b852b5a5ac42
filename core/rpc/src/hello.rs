//! Hellos: the first bytes that each side sends.

use crate::codec::{self, Cursor, DecodeError, Encode, printable, shortened};
use crate::message::Failure;
use crate::{MOST_NAME, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// Bytes of a hello without its fields.
const HELLO: usize = 16;
/// The versions of the protocol that this code supports.
pub const VERSIONS: RangeInclusive<u16> = 1..=1;

const CLIENT: &[u8; 8] = b"kumicall";
const SERVER: &[u8; 8] = b"KUMICALL";
const MOST_FIELDS: usize = 4096;
const MOST_TOKEN: usize = 1024;
const MOST_SITE: usize = 64;

mod tag {
    pub const TOKEN: u16 = 1;
    pub const PROGRAM: u16 = 2;
    pub const SERVER: u16 = 3;
    pub const STREAMS: u16 = 4;
    pub const BYTES: u16 = 5;
    pub const FAILURE: u16 = 6;
    pub const ROLE: u16 = 7;
    pub const SITE: u16 = 8;
    pub const MEMORY: u16 = 10;
    pub const LOCAL: u16 = 11;
    pub const VOUCHERS: u16 = 12;
    pub const RESOURCES: u16 = 13;
    pub const BINDS: u16 = 14;
    pub const HOLDS: u16 = 215;
    pub const LOGS: u16 = 216;
}

/// The hello of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// Supported versions.
    pub versions: RangeInclusive<u16>,
    /// The token of the user; empty: none.
    pub token: String,
    /// Name of the program, for logs.
    pub program: String,
    /// Site of the client; empty: the network of its address.
    pub site: String,
    /// The client can map shared memory of a server on its machine.
    pub maps_memory: bool,
}

impl Default for ClientHello {
    /// A hello without token, program and site.
    fn default() -> ClientHello {
        let (token, program, site) = (String::new(), String::new(), String::new());
        ClientHello { versions: VERSIONS, token, program, site, maps_memory: false }
    }
}

/// The role of the process that accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// A server of routines.
    #[default]
    Server,
    /// A metaserver, which places calls at servers.
    Metaserver,
}

impl fmt::Debug for ClientHello {
    /// Leaves out the token, which must not get into logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientHello")
            .field("versions", &self.versions)
            .field("token", &if self.token.is_empty() { "none" } else { "given" })
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// The hello of a server or a metaserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHello {
    /// The version of the connection, or why it is refused.
    pub version: Result<u16, Failure>,
    /// The highest version that the server supports.
    pub highest: u16,
    /// Its name.
    pub name: String,
    /// Most open streams.
    pub streams: u32,
    /// Most bytes of memory for the arguments of a call.
    pub bytes: u64,
    /// Server or metaserver.
    pub role: Role,
    /// The server grants shared memory to this client.
    pub shares_memory: bool,
    /// The local socket for clients on the same machine.
    pub local: Option<LocalEndpoint>,
    /// Support of vouchers for held arrays.
    pub vouchers: VoucherSupport,
    /// It gives calls the threads and the memory that clients ask for. Older servers skip what they are asked for.
    pub gives_resources: bool,
    /// The metaserver knows calls that run at one server or nowhere ([`crate::PlacementRequest::bound`]). Older ones end the
    /// connection for them.
    pub binds_calls: bool,
    /// The server holds arrays that clients send.
    pub holds_arrays: bool,
    /// It answers requests for logs of calls. Older servers skip them.
    pub shows_logs: bool,
}

/// A server's support of vouchers for held arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VoucherSupport {
    /// The server does not know vouchers.
    #[default]
    Unknown,
    /// The server issues vouchers, and passes on those that come with a call.
    Known,
    /// The same, and whoever fetches arrays of this client needs one.
    Wanted,
}

/// A local socket of a server that was reached over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalEndpoint {
    /// Random bytes from which the socket's name is made.
    pub secret: [u8; 16],
    /// The client's port as the server sees it. A client that has another port is connected through a proxy.
    pub port: u16,
}

fn field(out: &mut Vec<u8>, tag: u16, content: impl Encode) {
    let mut body = Vec::new();
    content.put(&mut body);
    if let Ok(length) = u16::try_from(body.len()) {
        (tag, length, &body[..]).put(out);
    }
}

/// A field that says that something is so.
fn flag(out: &mut Vec<u8>, tag: u16, is_so: bool) {
    if is_so {
        field(out, tag, true);
    }
}

fn head(magic: [u8; 8], first: u16, second: u16, fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HELLO + fields.len());
    let length = u32::try_from(fields.len()).unwrap_or(u32::MAX);
    (magic, (first, second), length, fields).put(&mut out);
    out
}

/// Two numbers and the fields of a complete hello; otherwise the number of bytes that it needs.
type Parsed<'a> = Result<(u16, u16, &'a [u8]), usize>;

fn parse(magic: [u8; 8], input: &[u8]) -> Result<Parsed<'_>, ProtocolError> {
    // The first wrong byte is refused at once.
    if input.iter().zip(magic).any(|(is, should)| *is != should) {
        return Err(ProtocolError::Magic);
    }
    let mut cursor = Cursor::new(&input[magic.len().min(input.len())..]);
    let Ok((first, second, length)) = cursor.get::<(u16, u16, u32)>() else {
        return Ok(Err(HELLO));
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MOST_FIELDS {
        return Err(ProtocolError::Hello(DecodeError::Long));
    }
    match cursor.bytes(length) {
        Ok(fields) => Ok(Ok((first, second, fields))),
        Err(_) => Ok(Err(HELLO + length)),
    }
}

fn each_field(
    fields: &[u8],
    mut take: impl FnMut(u16, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), ProtocolError> {
    let mut cursor = Cursor::new(fields);
    while !cursor.is_empty() {
        let one = cursor.get().and_then(|tag| take(tag, cursor.counted()?));
        one.map_err(ProtocolError::Hello)?;
    }
    Ok(())
}

/// A local endpoint; `None`: the length is that of a newer kind.
fn local(content: &[u8]) -> Option<LocalEndpoint> {
    let (secret, port) = codec::whole(content).ok()?;
    Some(LocalEndpoint { secret, port })
}

fn text(bytes: &[u8], most: usize) -> Result<String, DecodeError> {
    if bytes.len() > most {
        return Err(DecodeError::Long);
    }
    codec::text(bytes).map(str::to_owned)
}

impl ClientHello {
    /// Encodes the hello. Every server refuses a token of more than 1,024 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        if !self.token.is_empty() {
            field(&mut fields, tag::TOKEN, shortened(&self.token, MOST_TOKEN + 1).as_bytes());
        }
        field(&mut fields, tag::PROGRAM, shortened(&self.program, MOST_NAME).as_bytes());
        if !self.site.is_empty() {
            field(&mut fields, tag::SITE, shortened(&self.site, MOST_SITE).as_bytes());
        }
        flag(&mut fields, tag::MEMORY, self.maps_memory);
        head(*CLIENT, *self.versions.start(), *self.versions.end(), &fields)
    }

    /// Decodes a hello and its length, or returns how many bytes are needed. Control characters in the program's name are
    /// escaped.
    ///
    /// # Errors
    /// The other side does not speak this protocol.
    pub fn decode(input: &[u8]) -> Result<Result<(ClientHello, usize), usize>, ProtocolError> {
        let (lowest, highest, fields) = match parse(*CLIENT, input)? {
            Ok(parsed) => parsed,
            Err(needed) => return Ok(Err(needed)),
        };
        let mut hello = ClientHello { versions: lowest..=highest, ..ClientHello::default() };
        each_field(fields, |tag, content| {
            match tag {
                tag::TOKEN => hello.token = text(content, MOST_TOKEN)?,
                tag::PROGRAM => hello.program = printable(&text(content, MOST_NAME)?),
                tag::SITE => hello.site = printable(&text(content, MOST_SITE)?),
                tag::MEMORY => hello.maps_memory = content == [1],
                _ => {}
            }
            Ok(())
        })?;
        Ok(Ok((hello, HELLO + fields.len())))
    }

    /// The highest version that both sides support.
    #[must_use]
    pub fn common(&self, ours: &RangeInclusive<u16>) -> Option<u16> {
        let highest = *self.versions.end().min(ours.end());
        let lowest = *self.versions.start().max(ours.start());
        (lowest <= highest && highest > 0).then_some(highest)
    }
}

impl ServerHello {
    /// The hello of a server that says nothing but its version: it has no limits, and offers nothing beside calls.
    #[must_use]
    pub fn new(version: Result<u16, Failure>, highest: u16) -> ServerHello {
        ServerHello {
            version,
            highest,
            name: String::new(),
            streams: u32::MAX,
            bytes: u64::MAX,
            role: Role::Server,
            shares_memory: false,
            local: None,
            vouchers: VoucherSupport::Unknown,
            gives_resources: false,
            binds_calls: false,
            holds_arrays: false,
            shows_logs: false,
        }
    }

    /// The hello of a server that refuses a client.
    pub(crate) fn refusing(failure: Failure) -> ServerHello {
        let highest = *VERSIONS.end();
        ServerHello { streams: 0, bytes: 0, ..ServerHello::new(Err(failure), highest) }
    }

    /// Encodes the hello.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        field(&mut fields, tag::SERVER, shortened(&self.name, MOST_NAME).as_bytes());
        field(&mut fields, tag::STREAMS, self.streams);
        field(&mut fields, tag::BYTES, self.bytes);
        flag(&mut fields, tag::ROLE, self.role == Role::Metaserver);
        flag(&mut fields, tag::MEMORY, self.shares_memory);
        if let Some(local) = &self.local {
            field(&mut fields, tag::LOCAL, (local.secret, local.port));
        }
        flag(&mut fields, tag::LOGS, self.shows_logs);
        flag(&mut fields, tag::RESOURCES, self.gives_resources);
        flag(&mut fields, tag::BINDS, self.binds_calls);
        flag(&mut fields, tag::HOLDS, self.holds_arrays);
        match self.vouchers {
            VoucherSupport::Unknown => {}
            VoucherSupport::Known => field(&mut fields, tag::VOUCHERS, 1_u8),
            VoucherSupport::Wanted => field(&mut fields, tag::VOUCHERS, 2_u8),
        }
        let version = self.version.as_ref().copied().unwrap_or_else(|failure| {
            field(&mut fields, tag::FAILURE, failure);
            0
        });
        head(*SERVER, version, self.highest, &fields)
    }

    /// Decodes a hello and its length, or returns how many bytes are needed. Control characters in texts are escaped.
    ///
    /// # Errors
    /// The other side does not speak this protocol.
    pub fn decode(input: &[u8]) -> Result<Result<(ServerHello, usize), usize>, ProtocolError> {
        let (version, highest, fields) = match parse(*SERVER, input)? {
            Ok(parsed) => parsed,
            Err(needed) => return Ok(Err(needed)),
        };
        let mut hello = ServerHello::new(Ok(version), highest);
        let mut refusal = Failure::version(highest);
        each_field(fields, |tag, content| {
            match tag {
                tag::SERVER => hello.name = printable(&text(content, MOST_NAME)?),
                tag::STREAMS => hello.streams = Cursor::new(content).get()?,
                tag::BYTES => hello.bytes = Cursor::new(content).get()?,
                tag::ROLE if content == [1] => hello.role = Role::Metaserver,
                tag::MEMORY => hello.shares_memory = content == [1],
                tag::LOCAL => hello.local = local(content),
                tag::VOUCHERS if content == [1] => hello.vouchers = VoucherSupport::Known,
                tag::VOUCHERS if content == [2] => hello.vouchers = VoucherSupport::Wanted,
                tag::RESOURCES => hello.gives_resources = content == [1],
                tag::BINDS => hello.binds_calls = content == [1],
                tag::HOLDS => hello.holds_arrays = content == [1],
                tag::LOGS => hello.shows_logs = content == [1],
                tag::FAILURE => refusal = Failure::decode(content)?,
                _ => {}
            }
            Ok(())
        })?;
        if version == 0 {
            hello.version = Err(refusal);
        }
        Ok(Ok((hello, HELLO + fields.len())))
    }
}
