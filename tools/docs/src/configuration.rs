//! The reference of configuration files: keys from the structs that serde reads, defaults from reading a file without them.

use crate::DocsError;
use crate::region::table;
use crate::rust::{Field, Source};
use kumi_node::config::ClusterConfig;
use kumi_sim::calls::Model;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A configuration with what must be there and nothing else.
const CLUSTER: &str = "name = \"x\"\nkind = \"local\"\nhead = \"127.0.0.1:1\"\n\
                       [[nodes]]\nname = \"x\"\naddress = \"127.0.0.2\"\nport = 2\n";

/// The smallest model of calls.
fn model() -> Value {
    json!({
        "sites": [{"name": "x", "links": [{"bandwidth": 1.0}]}],
        "servers": [{"name": "x", "processors": 1, "speed": 1.0}],
        "routines": [{"name": "x", "operations": 1.0}],
        "clients": [{"site": "x", "routines": ["x"], "source": {"think": 1.0}}],
        "policy": "x",
    })
}

/// The generated parts of the page.
///
/// # Errors
/// When a struct is not where it was.
pub fn regions(root: &Path) -> Result<Vec<(String, String)>, DocsError> {
    let unusable =
        |error: String| DocsError::Source(format!("a smallest file cannot be read: {error}"));
    let config: ClusterConfig =
        toml::from_str(CLUSTER).map_err(|error| unusable(error.to_string()))?;
    let cluster = serde_json::to_value(&config).map_err(|error| unusable(error.to_string()))?;
    let quota = serde_json::to_value(&config.quota).map_err(|error| unusable(error.to_string()))?;
    let retention = serde_json::to_value(&config.retention);
    let retention = retention.map_err(|error| unusable(error.to_string()))?;
    let shares = serde_json::to_value(&config.shares);
    let shares = shares.map_err(|error| unusable(error.to_string()))?;
    let hooks = serde_json::to_value(&config.hooks);
    let hooks = hooks.map_err(|error| unusable(error.to_string()))?;
    let health = serde_json::to_value(&config.health);
    let health = health.map_err(|error| unusable(error.to_string()))?;
    let privacy = serde_json::to_value(&config.privacy);
    let privacy = privacy.map_err(|error| unusable(error.to_string()))?;
    let model: Model =
        serde_json::from_value(model()).map_err(|error| unusable(error.to_string()))?;
    let model = serde_json::to_value(&model).map_err(|error| unusable(error.to_string()))?;
    let node = Source::read(root, "runtime/node/src/config")?;
    let node = node.and(Source::read_file(root, "runtime/node/src/config.rs")?);
    let users = Source::read(root, "runtime/call/access/src/users")?;
    let sim = Source::read_file(root, "tools/sim/src/calls/model.rs")?;
    let parts = [
        ("cluster.toml", &node, "ClusterConfig", &cluster),
        ("job", &node, "JobDefaults", &Value::Null),
        ("limits", &node, "LimitCaps", &Value::Null),
        ("quota", &node, "Quotas", &quota),
        ("shares", &node, "Shares", &shares),
        ("hooks", &node, "Hooks", &hooks),
        ("health", &node, "Health", &health),
        ("retention", &node, "Retention", &retention),
        ("privacy", &node, "Privacy", &privacy),
        ("web", &node, "Web", &Value::Null),
        ("etcd", &node, "EtcdAccess", &Value::Null),
        ("nodes", &node, "NodeConfig", &cluster["nodes"][0]),
        ("user", &users, "UserEntry", &Value::Null),
        ("token", &users, "Token", &Value::Null),
        ("model", &sim, "Model", &model),
        ("site", &sim, "Site", &model["sites"][0]),
        ("link", &sim, "Link", &model["sites"][0]["links"][0]),
        ("server", &sim, "Server", &model["servers"][0]),
        ("routine", &sim, "Routine", &model["routines"][0]),
        ("clients", &sim, "Clients", &model["clients"][0]),
        ("task", &sim, "Task", &Value::Null),
    ];
    parts
        .into_iter()
        .map(|(region, source, name, least)| {
            Ok((region.to_owned(), keys(source, name, least.as_object())?))
        })
        .collect()
}

/// The keys of a struct; `least` is what a file says that leaves out what may be left out.
fn keys(
    source: &Source,
    name: &str,
    least: Option<&Map<String, Value>>,
) -> Result<String, DocsError> {
    let fields = source.fields(name)?;
    let undocumented = fields.iter().find(|field| field.doc.is_empty());
    if let Some(field) = undocumented {
        return Err(DocsError::Source(format!(
            "`{}` of {name} has no documentation comment",
            field.key
        )));
    }
    let row = |field: &Field| {
        let value = least.and_then(|least| least.get(&field.key));
        vec![
            format!("`{}`", field.key),
            kind(source, &field.ty),
            default(field, value),
            format!("{}.", field.doc),
        ]
    };
    Ok(table(&["key", "type", "default", "meaning"], &fields.iter().map(row).collect::<Vec<_>>()))
}

/// A Rust type in words.
fn kind(source: &Source, ty: &str) -> String {
    let inside = |name: &str| ty.strip_prefix(name).and_then(|rest| rest.strip_suffix('>'));
    if let Some(inner) = inside("Option<") {
        return kind(source, inner);
    }
    if let Some(inner) = inside("Vec<") {
        return format!("list of {}", kind(source, inner));
    }
    match ty {
        "String" | "PathBuf" => "text".to_owned(),
        "bool" => "`true` or `false`".to_owned(),
        "f32" | "f64" => "number".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "whole number".to_owned(),
        "IpAddr" => "IPv4 or IPv6 address".to_owned(),
        "SocketAddr" => "address and port".to_owned(),
        "Timestamp" => "RFC 3339 time".to_owned(),
        other => match source.variants(other) {
            Ok(variants) => {
                let all = variants.iter().map(|variant| {
                    let key = format!("`\"{}\"`", variant.key);
                    if variant.is_unit { key } else { format!("`{{\"{}\": …}}`", variant.key) }
                });
                all.collect::<Vec<_>>().join(" or ")
            }
            Err(_) => "table".to_owned(),
        },
    }
}

fn default(field: &Field, value: Option<&Value>) -> String {
    match value {
        _ if !field.optional => "required".to_owned(),
        Some(Value::Array(list)) if list.is_empty() => "none".to_owned(),
        Some(value) => format!("`{value}`"),
        None if field.ty == "bool" => "`false`".to_owned(),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;
    use std::collections::BTreeSet;

    /// Former names of keys, which are still read.
    const OLD_KEYS: [&str; 1] = ["max_jobs_per_node"];

    /// The keys that serde names when it meets one that is none.
    fn expected(error: &str) -> BTreeSet<String> {
        let (_, list) = error.split_once("unknown field `nonsense`, expected").expect(error);
        let list = list.lines().next().unwrap_or_default();
        let keys = list.split('`').skip(1).step_by(2).filter(|key| !OLD_KEYS.contains(key));
        keys.map(str::to_owned).collect()
    }

    fn documented(source: &Source, name: &str) -> BTreeSet<String> {
        source.fields(name).expect(name).into_iter().map(|field| field.key).collect()
    }

    #[test]
    fn the_pages_keys_of_clusters_are_those_that_serde_knows() {
        let source = Source::read(repository(), "runtime/node/src/config").unwrap();
        let whole = Source::read_file(repository(), "runtime/node/src/config.rs").unwrap();
        let source = source.and(whole);
        for (name, text) in [
            ("ClusterConfig", format!("nonsense = 1\n{CLUSTER}")),
            ("NodeConfig", format!("{CLUSTER}nonsense = 1\n")),
            ("JobDefaults", format!("{CLUSTER}[job]\nnonsense = 1\n")),
            ("LimitCaps", format!("{CLUSTER}[limits]\nnonsense = 1\n")),
            ("Quotas", format!("{CLUSTER}[quota]\nnonsense = 1\n")),
            ("Shares", format!("{CLUSTER}[shares]\nnonsense = 1\n")),
            ("Hooks", format!("{CLUSTER}[hooks]\nnonsense = 1\n")),
            ("Health", format!("{CLUSTER}[health]\nnonsense = 1\n")),
            ("Retention", format!("{CLUSTER}[retention]\nnonsense = 1\n")),
            ("Privacy", format!("{CLUSTER}[privacy]\nnonsense = 1\n")),
        ] {
            let error = toml::from_str::<ClusterConfig>(&text).unwrap_err().to_string();
            assert_eq!(documented(&source, name), expected(&error), "{name}");
        }
    }

    #[test]
    fn the_pages_keys_of_models_are_those_that_serde_knows() {
        let source = Source::read_file(repository(), "tools/sim/src/calls/model.rs").unwrap();
        for (name, place) in [
            ("Model", ""),
            ("Site", "/sites/0"),
            ("Link", "/sites/0/links/0"),
            ("Server", "/servers/0"),
            ("Routine", "/routines/0"),
            ("Clients", "/clients/0"),
        ] {
            let mut model = model();
            model.pointer_mut(place).expect(place)["nonsense"] = json!(1);
            let error = serde_json::from_value::<Model>(model).unwrap_err().to_string();
            assert_eq!(documented(&source, name), expected(&error), "{name}");
        }
    }
}
