//! Memory that a server shares with a client on its machine: bytes as docs/reference/call-protocol.md has them, and those who break
//! the protocol.

use crate::sharing::{BOTH, ends, events, head, heard, part, size, written};
use kumi_rpc::{
    CallHead, Client, ClientEvent, ClientHello, Code, DecodeError, Failure, HeldArrayName,
    HeldArrayPart, HeldArrays, HeldResult, LocalEndpoint, MemoryGrant, ProtocolError, ResultHead,
    ServerEvent, ServerHello, SharedDirections, Value, chunk_header,
};

const SENT: SharedDirections = SharedDirections { sent: true, returned: false };
const RETURNED: SharedDirections = SharedDirections { sent: false, returned: true };

#[test]
fn hellos() {
    let hello = ClientHello { program: "p".into(), maps_memory: true, ..ClientHello::default() };
    let bytes = b"kumicall\x01\0\x01\0\x0a\0\0\0\x02\0\x01\0p\x0a\0\x01\0\x01";
    assert_eq!(hello.encode(), bytes);
    assert_eq!(ClientHello::decode(bytes), Ok(Ok((hello, bytes.len()))));
    let mut answer = b"KUMICALL\x01\0\x01\0\x1b\0\0\0\x0a\0\x01\0\x01\x0b\0\x12\0".to_vec();
    answer.extend_from_slice(b"0123456789abcdef\x39\x30");
    let local = LocalEndpoint { secret: *b"0123456789abcdef", port: 12345 };
    let (hello, _) = ServerHello::decode(&answer).expect("well-formed").expect("whole");
    assert!(hello.shares_memory && hello.local == Some(local));
    let again = ServerHello::decode(&hello.encode()).expect("well-formed").expect("whole");
    assert_eq!(again.0, hello);
    // Of another length it is none.
    answer[12] -= 1;
    answer[23] -= 1;
    let (hello, _) = ServerHello::decode(&answer).expect("well-formed").expect("whole");
    assert!(hello.shares_memory && hello.local.is_none());
}

/// A call that fails before its memory was granted waits for none.
#[test]
fn a_refused_call_waits_for_no_memory() {
    let (mut client, mut server) = ends(true);
    let mut out = Vec::new();
    for refused in 1..=2 {
        let wants = head(vec![(1, SENT)]);
        let stream = client.call(&wants, &[size(2, 4)], &mut out).expect("short");
        assert_eq!(client.pending_grants(), 1, "call {refused}");
        events(&mut server, &std::mem::take(&mut out)).expect("a call");
        server.fail(stream, &Failure::new(Code::Busy, 0, "no"));
        let (bytes, _) = written(&mut server);
        heard(&mut client, &bytes).expect("a failure");
        assert_eq!(client.pending_grants(), 0, "call {refused}");
    }
}

#[test]
fn a_call_byte_by_byte() {
    let (mut client, mut server) = ends(true);
    let mut out = Vec::new();
    let wants = head(vec![(1, SENT), (2, BOTH)]);
    let stream = client.call(&wants, &[size(2, 4)], &mut out).expect("short");
    assert_eq!(out[12..], *b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\0f\x02\0\x01\0\x09\x01\x02\0\x09\x03");
    assert_eq!(client.pending_grants(), 1);
    assert_eq!(events(&mut server, &out), Ok(vec![ServerEvent::Call(1, wants)]));
    let grant = MemoryGrant {
        memory: 5,
        length: 4096,
        fresh: true,
        parts: vec![part(1, SENT, 8, 3), part(2, BOTH, 16, 4)],
        gone: vec![3],
    };
    server.accept_with(stream, &[], &grant);
    let (bytes, with) = written(&mut server);
    let mut expected = b"\x3f\0\0\0\x01\0\0\0\x14\0\0\0".to_vec();
    expected.extend_from_slice(b"\x05\0\0\0\0\x10\0\0\0\0\0\0\x01\x02\0");
    expected.extend_from_slice(b"\x01\0\x01\x08\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
    expected.extend_from_slice(b"\x02\0\x03\x10\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01\0\x03\0\0\0");
    expected[0] = u8::try_from(expected.len() - 12).expect("short");
    assert_eq!((bytes.as_slice(), with), (expected.as_slice(), vec![(0, 5)]));
    assert_eq!(heard(&mut client, &bytes), Ok(vec![ClientEvent::Granted(1, grant)]));
    assert_eq!(client.pending_grants(), 0);
    let mut out = Vec::new();
    client.filled(stream, &mut out);
    assert_eq!(out, b"\0\0\0\0\x01\0\0\0\x15\0\0\0");
    assert_eq!(events(&mut server, &out), Ok(vec![ServerEvent::Ready(1)]));
    let result = ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] };
    server.finish(stream, &result, &[]);
    let (bytes, with) = written(&mut server);
    assert!(with.is_empty());
    let told = heard(&mut client, &bytes).expect("well-formed");
    assert_eq!(told, [ClientEvent::Result(1, result), ClientEvent::Done(1)]);
    let mut out = Vec::new();
    client.release(5, &mut out);
    assert_eq!(out, b"\x04\0\0\0\0\0\0\0\x17\0\0\0\x05\0\0\0");
    assert_eq!(events(&mut server, &out), Ok(vec![ServerEvent::Release(5)]));
}

#[test]
fn what_is_not_granted_travels() {
    let (mut client, mut server) = ends(true);
    let mut out = Vec::new();
    let wants = head(vec![(1, BOTH), (2, RETURNED)]);
    client.call(&wants, &[size(1, 3), size(2, 4)], &mut out).expect("short");
    assert_eq!(events(&mut server, &out).map(|events| events.len()), Ok(1));
    server.accept_with(1, &[size(1, 3)], &MemoryGrant::default());
    let told = heard(&mut client, &written(&mut server).0);
    assert_eq!(told, Ok(vec![ClientEvent::Granted(1, MemoryGrant::default())]));
    let chunk = [&chunk_header(1, 1, 3)[..], b"abc"].concat();
    assert_eq!(events(&mut server, &chunk), Ok(vec![ServerEvent::Ready(1)]));
    let result = ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] };
    server.finish(1, &result, &[size(1, 3), size(2, 4)]);
    let told = heard(&mut client, &written(&mut server).0).expect("well-formed");
    assert_eq!(told.last(), Some(&ClientEvent::Done(1)));
}

#[test]
fn entries_of_a_head_are_in_order() {
    let name = HeldArrayName { secret: [1; 16], index: 2 };
    let keep = HeldResult { name, lifetime_ms: 1, sent: true, survives: false };
    let from = HeldArrayPart {
        offset: 0,
        length: 1,
        name,
        from: 0,
        server: String::new(),
        voucher: String::new(),
    };
    let decoded = |head: &CallHead| {
        let mut out = Vec::new();
        head.encode(&mut out);
        CallHead::decode(&out)
    };
    let held = HeldArrays { from: vec![], keep: vec![(1, keep)] };
    let values = vec![(0, Value::I64(1))];
    let good = CallHead { values, held, ..head(vec![(1, RETURNED), (2, SENT)]) };
    assert_eq!(decoded(&good), Ok(good.clone()), "an array may stay and be taken from memory");
    let held = HeldArrays { from: vec![(1, vec![from])], keep: vec![] };
    let parts = CallHead { held, ..good.clone() };
    assert_eq!(decoded(&parts), Err(DecodeError::Order), "parts of it are not the client's to put");
    let scalar = CallHead { shared: vec![(0, SENT)], ..good.clone() };
    assert_eq!(decoded(&scalar), Err(DecodeError::Order), "a value is no array");
    let twice = CallHead { shared: vec![(2, SENT), (2, RETURNED)], ..good.clone() };
    assert_eq!(decoded(&twice), Err(DecodeError::Order));
    let nothing = CallHead { shared: vec![(2, SharedDirections::default())], ..good };
    assert_eq!(decoded(&nothing), Err(DecodeError::Tag));
}

#[test]
fn grants_that_cannot_be() {
    let good = MemoryGrant {
        memory: 1,
        length: 64,
        fresh: true,
        parts: vec![part(1, SENT, 8, 56)],
        gone: vec![],
    };
    let decoded = |grant: &MemoryGrant| {
        let mut out = Vec::new();
        grant.encode(&mut out);
        MemoryGrant::decode(&out)
    };
    assert_eq!(decoded(&good), Ok(good.clone()));
    let wrong = [
        MemoryGrant { parts: vec![part(1, SENT, 8, 57)], ..good.clone() },
        MemoryGrant { parts: vec![part(1, SENT, u64::MAX, 2)], ..good.clone() },
        MemoryGrant { parts: vec![part(1, SENT, 0, 1), part(1, SENT, 8, 1)], ..good.clone() },
        MemoryGrant { parts: vec![], ..good.clone() },
        MemoryGrant { memory: 0, ..good.clone() },
        MemoryGrant { fresh: true, ..MemoryGrant::default() },
    ];
    for grant in wrong {
        assert_eq!(decoded(&grant), Err(DecodeError::Order), "{grant:?}");
    }
    let many = MemoryGrant { gone: (0..2000).collect(), ..good };
    assert_eq!(decoded(&many).map(|grant| grant.gone.len()), Ok(MemoryGrant::MOST_GONE));
}

/// A client that does what it may not: what the server makes of it.
#[test]
fn clients_that_break_the_protocol() {
    let call = |share| {
        let mut out = Vec::new();
        Client::new().call(&head(vec![(1, share)]), &[], &mut out).expect("short");
        out
    };
    let (_, mut server) = ends(false);
    let refused = events(&mut server, &call(SENT));
    assert!(matches!(refused, Err(ProtocolError::Body { kind: 3, why: DecodeError::Tag })));
    let grant = MemoryGrant {
        memory: 9,
        length: 64,
        fresh: false,
        parts: vec![part(1, SENT, 0, 8)],
        gone: vec![],
    };
    let granted = |share| {
        let (_, mut server) = ends(true);
        assert_eq!(events(&mut server, &call(share)).map(|events| events.len()), Ok(1));
        let parts = vec![part(1, share, 0, 8)];
        server.accept_with(1, &[], &MemoryGrant { parts, ..grant.clone() });
        server
    };
    let filled = b"\0\0\0\0\x01\0\0\0\x15\0\0\0";
    let unasked = |kind, stream| Err(ProtocolError::Unasked { kind, stream });
    assert_eq!(events(&mut granted(RETURNED), filled), unasked(21, 1), "there is nothing to fill");
    let mut server = granted(SENT);
    assert_eq!(events(&mut server, filled), Ok(vec![ServerEvent::Ready(1)]));
    assert_eq!(events(&mut server, filled), unasked(21, 1), "it was filled");
    let release = b"\x04\0\0\0\0\0\0\0\x17\0\0\0\x09\0\0\0";
    let mut server = granted(SENT);
    assert_eq!(events(&mut server, release), Ok(vec![ServerEvent::Release(9)]));
    assert_eq!(events(&mut server, release), unasked(23, 0), "it has given it back");
    let mut server = granted(SENT);
    let chunk = [&chunk_header(1, 1, 1)[..], b"a"].concat();
    let excess = ProtocolError::Excess { stream: 1, argument: 1 };
    assert_eq!(events(&mut server, &chunk), Err(excess), "it goes through memory");
    // What has ended meanwhile is no fault of the client's.
    let mut server = granted(SENT);
    server.fail(1, &Failure::new(Code::TimedOut, 0, "late"));
    assert_eq!(events(&mut server, filled), Ok(vec![]));
    assert_eq!(events(&mut server, release), Ok(vec![ServerEvent::Release(9)]));
}

/// A server that does what it may not: what the client makes of it.
#[test]
fn servers_that_break_the_protocol() {
    let answers = |share: Option<SharedDirections>, grants: &[MemoryGrant]| {
        let (mut client, mut server) = ends(true);
        let shared = share.map(|share| (1, share)).into_iter().collect();
        client.call(&head(shared), &[size(1, 8)], &mut Vec::new()).expect("short");
        grants.iter().for_each(|grant| server.accept_with(1, &[], grant));
        heard(&mut client, &written(&mut server).0)
    };
    let grant = |parts| MemoryGrant { memory: 9, length: 64, fresh: false, parts, gone: vec![] };
    let good = grant(vec![part(1, RETURNED, 0, 8)]);
    let unasked = ProtocolError::Unasked { kind: 20, stream: 1 };
    assert_eq!(answers(None, std::slice::from_ref(&good)), Err(unasked));
    assert!(answers(Some(RETURNED), std::slice::from_ref(&good)).is_ok());
    assert_eq!(answers(Some(RETURNED), &[good.clone(), good.clone()]), Err(unasked), "twice");
    assert_eq!(
        answers(Some(SENT), std::slice::from_ref(&good)),
        Err(unasked),
        "the wrong direction"
    );
    let other = grant(vec![part(2, RETURNED, 0, 8)]);
    assert_eq!(answers(Some(RETURNED), &[other]), Err(unasked), "another array");
    let short = grant(vec![part(1, RETURNED, 0, 7)]);
    let excess = ProtocolError::Excess { stream: 1, argument: 1 };
    assert_eq!(answers(Some(RETURNED), &[short]), Err(excess));
    // A result without an answer to what was asked.
    let (mut client, mut server) = ends(true);
    client.call(&head(vec![(1, BOTH)]), &[size(1, 8)], &mut Vec::new()).expect("short");
    server.finish(1, &ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] }, &[]);
    let told = heard(&mut client, &written(&mut server).0);
    assert_eq!(told, Err(ProtocolError::Unasked { kind: 10, stream: 1 }));
}
