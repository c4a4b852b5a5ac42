//! Requests to etcd: ranges, guarded writes, leases.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::EtcdError;
use super::code::EXHAUSTED;
use super::http::Gateway;

/// Pairs that the first answer may have, and most pairs of any.
const PAGES: (usize, usize) = (64, 1024);
/// Bytes of values that an answer should have at most. The next one has fewer pairs if it had more. Gateways of etcd 3.4.0 to
/// 3.4.16 refuse answers of more than 4 MiB.
const PAGE_BYTES: usize = 2 << 20;

/// A key with its value in etcd.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that created it.
    pub created: i64,
    /// The revision that changed it last.
    pub changed: i64,
    /// The lease with which it goes; 0: none.
    pub lease: i64,
}

/// A change: the new value of a key, or its removal.
pub type Change = (String, Option<Vec<u8>>);

fn coded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn wrong(what: &str) -> EtcdError {
    EtcdError::Answer(what.to_owned())
}

/// This JSON has 64-bit numbers as text, and leaves out 0.
fn number(value: &Value) -> Result<i64, EtcdError> {
    match value {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(|_| wrong("a number")),
        other => other.as_i64().ok_or_else(|| wrong("a number")),
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, EtcdError> {
    STANDARD.decode(value.as_str().unwrap_or_default()).map_err(|_| wrong("a value"))
}

fn pairs(answer: &Value) -> Result<Vec<Pair>, EtcdError> {
    let Some(kvs) = answer["kvs"].as_array() else { return Ok(Vec::new()) };
    let pair = |kv: &Value| {
        let key = String::from_utf8(bytes(&kv["key"])?).map_err(|_| wrong("a key"))?;
        let (created, changed) = (number(&kv["create_revision"])?, number(&kv["mod_revision"])?);
        let (value, lease) = (bytes(&kv["value"])?, number(&kv["lease"])?);
        Ok(Pair { key, value, created, changed, lease })
    };
    kvs.iter().map(pair).collect()
}

/// The first key behind all keys with this prefix.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Prefixes are UTF-8, so no byte of them is 255.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The value of a key.
pub async fn get(gateway: &mut Gateway, key: &str) -> Result<Option<Pair>, EtcdError> {
    let answer = gateway.post("/v3/kv/range", &json!({ "key": coded(key) })).await?;
    Ok(pairs(&answer)?.into_iter().next())
}

/// All pairs whose keys have this prefix, in order.
pub async fn all(gateway: &mut Gateway, prefix: &str) -> Result<Vec<Pair>, EtcdError> {
    let (mut from, end) = (prefix.as_bytes().to_vec(), behind(prefix));
    let (mut found, mut page) = (Vec::new(), PAGES.0);
    loop {
        let body = json!({ "key": coded(&from), "range_end": coded(&end), "limit": page });
        let some = match gateway.post("/v3/kv/range", &body).await {
            Err(EtcdError::LongAnswer { .. } | EtcdError::Refused { code: EXHAUSTED, .. })
                if page > 1 =>
            {
                page /= 2;
                continue;
            }
            answer => pairs(&answer?)?,
        };
        let (count, asked) = (some.len(), page);
        let bytes: usize = some.iter().map(|pair| pair.value.len()).sum();
        page = (page * 2).min(PAGES.1).min(PAGE_BYTES * count.max(1) / bytes.max(1)).max(1);
        if let Some(last) = some.last() {
            from = last.key.as_bytes().to_vec();
            from.push(0);
        }
        found.extend(some);
        if count < asked {
            return Ok(found);
        }
    }
}

fn operation((key, value): &Change, lease: i64) -> Value {
    match value {
        None => json!({ "request_delete_range": { "key": coded(key) } }),
        Some(value) => json!({ "request_put": {
            "key": coded(key), "value": coded(value), "lease": lease.to_string(),
        }}),
    }
}

/// The condition that no write has come since the last one.
#[derive(Clone, Copy, Debug)]
pub struct OrderCheck<'a> {
    /// The key with the name of the last write.
    pub key: &'a str,
    /// The revision that changed it last; 0: it is not there.
    pub last: i64,
    /// The name of this write.
    pub name: &'a [u8],
}

/// What came of a write in order.
#[derive(Debug)]
pub enum Outcome {
    /// It was made, in this revision.
    Made(i64),
    /// A condition failed.
    Refused {
        /// Whether the guard key still has its creation revision.
        leads: bool,
        /// The key with the name of the last write.
        last: Option<Pair>,
    },
}

/// Makes the changes if the guard key still has this creation revision, and the last write is the one before.
///
/// # Errors
/// No answer, or none that this version understands.
pub async fn ordered(
    gateway: &mut Gateway,
    (guard, created): (&str, i64),
    order: OrderCheck<'_>,
    changes: &[Change],
) -> Result<Outcome, EtcdError> {
    let named = (order.key.to_owned(), Some(order.name.to_vec()));
    let operations: Vec<Value> =
        changes.iter().chain([&named]).map(|change| operation(change, 0)).collect();
    let compare = json!([
        { "key": coded(guard), "target": "CREATE", "result": "EQUAL",
            "create_revision": created.to_string() },
        { "key": coded(order.key), "target": "MOD", "result": "EQUAL",
            "mod_revision": order.last.to_string() },
    ]);
    let look = |key: &str| json!({ "request_range": { "key": coded(key) } });
    let failure = [look(guard), look(order.key)];
    let body = json!({ "compare": compare, "success": operations, "failure": failure });
    let answer = gateway.post("/v3/kv/txn", &body).await?;
    if answer["succeeded"] == Value::Bool(true) {
        return number(&answer["header"]["revision"]).map(Outcome::Made);
    }
    let found = |at: usize| -> Result<Option<Pair>, EtcdError> {
        let range = &answer["responses"][at]["response_range"];
        Ok(pairs(range)?.into_iter().next())
    };
    let leads = found(0)?.is_some_and(|pair| pair.created == created);
    Ok(Outcome::Refused { leads, last: found(1)? })
}

/// Creates the first key with a lease if it is absent, and sets the second if it is unchanged. Returns the
/// revision. `None`: a condition failed.
pub async fn claim(
    gateway: &mut Gateway,
    (key, value, lease): (&str, &[u8], i64),
    (other, was, becomes): (&str, i64, &[u8]),
) -> Result<Option<i64>, EtcdError> {
    let compare = json!([
        { "key": coded(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0" },
        { "key": coded(other), "target": "MOD", "result": "EQUAL", "mod_revision": was.to_string() },
    ]);
    let operations = [
        operation(&(key.to_owned(), Some(value.to_vec())), lease),
        operation(&(other.to_owned(), Some(becomes.to_vec())), 0),
    ];
    let body = json!({ "compare": compare, "success": operations });
    let answer = gateway.post("/v3/kv/txn", &body).await?;
    if answer["succeeded"] != Value::Bool(true) {
        return Ok(None);
    }
    number(&answer["header"]["revision"]).map(Some)
}

/// Asks for a lease of this many seconds. Returns its number.
pub async fn grant(gateway: &mut Gateway, seconds: u64) -> Result<i64, EtcdError> {
    let body = json!({ "TTL": seconds.to_string() });
    let answer = gateway.post("/v3/lease/grant", &body).await?;
    match number(&answer["ID"])? {
        0 => Err(wrong("a lease")),
        lease => Ok(lease),
    }
}

/// Renews a lease. False: it has ended.
pub async fn keep_alive(gateway: &mut Gateway, lease: i64) -> Result<bool, EtcdError> {
    let body = json!({ "ID": lease.to_string() });
    let answer = gateway.post("/v3/lease/keepalive", &body).await?;
    Ok(number(&answer["result"]["TTL"])? > 0)
}

/// Ends a lease, which removes the keys made with it.
pub async fn revoke(gateway: &mut Gateway, lease: i64) -> Result<(), EtcdError> {
    let body = json!({ "ID": lease.to_string() });
    gateway.post("/v3/lease/revoke", &body).await.map(drop)
}
