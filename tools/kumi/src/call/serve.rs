//! `kumi call serve`: runs a server of routines.

use super::access::{GuardArgs, log};
use super::log_limits::LogArgs;
use super::python::PythonArgs;
use super::shipped::ShippedArgs;
use super::slot_limits::SlotArgs;
use crate::context::Context;
use crate::error::Error;
use crate::{cluster, output, parse};
use clap::Args;
use kumi_call::server::{
    Config, Jobs, LibraryCheck, Listener, Membership, Peers, Registry, Unloadable, serve,
};
use kumi_call::{Authorities, CallError};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `kumi call serve`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A server that other machines reach has --tokens, to know who calls, and encrypts \
(--tls-cert and --tls-key, or --tls-cluster); without both it listens on this machine only, unless \
--insecure-listen is given."
)]
pub struct ServeArgs {
    /// Files with interface descriptions, as text or JSON
    #[arg(value_name = "FILE", required_unless_present_any = ["python", "shipped"])]
    pub descriptions: Vec<PathBuf>,
    #[command(flatten)]
    pub shipped: ShippedArgs,
    /// Shared library with the routines, in addition to those that descriptions name; repeatable
    #[arg(long, value_name = "FILE")]
    pub library: Vec<PathBuf>,
    #[command(flatten)]
    pub functions: PythonArgs,
    /// Address to listen on: HOST:PORT (port 0: any free port) or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Listen on an address that other machines reach, even without authentication or encryption
    #[arg(long)]
    pub insecure_listen: bool,
    /// As --insecure-listen, and register at metaservers of other machines without encryption: whoever listens
    /// on the way can then call as any user
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub guard: GuardArgs,
    /// Run routines in a sandbox: without network and capabilities, and with read-only files except for empty
    /// private folders at /tmp, /var/tmp and /dev/shm; /run, /dev/pts and /dev/mqueue are empty
    #[arg(long)]
    pub sandbox: bool,
    /// Share no memory with clients on this machine, so that all arrays go through sockets
    #[arg(long)]
    pub no_shared_memory: bool,
    /// Most calls that run at the same time [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Most calls that may wait for a slot
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub waiting: usize,
    /// Most objects of classes at the same time; each is a process
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub objects: usize,
    /// Threads that the libraries of a routine may use
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,
    /// Time limit of a call, waiting included [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub call_time: Option<Duration>,
    /// Most MiB of one call's arguments [default: a quarter of the memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub call_memory: Option<u64>,
    /// Most MiB of address space of a routine's process, arguments included [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub process_memory: Option<u64>,
    #[command(flatten)]
    pub slot_limits: SlotArgs,
    #[command(flatten)]
    pub logs: LogArgs,
    /// Folder for the files of running calls [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Most MiB of one call's files, in either direction
    #[arg(long, value_name = "MIB", default_value_t = 16 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub call_files: u64,
    /// Most MiB of files of all calls together [default: four times those of one call]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub all_files: Option<u64>,
    /// Register at this metaserver, which sends clients here. Of several, the first that answers is used
    #[arg(long, value_name = "ADDR[,ADDR…]", value_delimiter = ',')]
    pub meta: Vec<String>,
    /// File with this server's token for the metaserver (made there by `kumi call token add NAME --server`)
    #[arg(long, value_name = "FILE", requires = "meta")]
    pub meta_token_file: Option<PathBuf>,
    /// For a metaserver at tls://HOST:PORT: PEM file with the trusted authorities, instead of those that the
    /// system trusts
    #[arg(long, value_name = "FILE", env = "KUMI_CALL_CA")]
    pub meta_ca: Option<PathBuf>,
    /// Accept only calls that the metaserver has sent
    #[arg(long, requires = "meta")]
    pub meta_only: bool,
    /// With --tokens: let the metaserver say which user calls. Whoever holds it can then call as each of them
    #[arg(long, requires = "meta")]
    pub trust_meta: bool,
    /// Address for clients [default: that of --listen, as the metaserver sees this machine]
    #[arg(long, value_name = "ADDR", requires = "meta")]
    pub advertise: Option<String>,
    /// Site of this server. Clients and servers of one site share its paths to other sites [default: the
    /// network of the address]
    #[arg(long, value_name = "NAME", env = "KUMI_CALL_SITE")]
    pub site: Option<String>,
    /// Most MiB of results that stay here between calls [default: a quarter of the memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub held_memory: Option<u64>,
    /// Longest time that a result stays here
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse::estimate)]
    pub held_time: Duration,
    /// Most ranks of a parallel routine's job; also the number if the routine does not say [default: one per
    /// processor of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Server from which results may be fetched for calls, as HOST:PORT or tls://HOST:PORT, or `any`; repeatable
    /// [default: those of the metaserver]
    #[arg(long, value_name = "ADDR")]
    pub peer: Vec<String>,
    /// For fetches from servers at tls://HOST:PORT: PEM file with the trusted authorities [default: that of
    /// --meta-ca, or those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub peer_ca: Option<PathBuf>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &ServeArgs, cluster: &str) -> Result<(), Error> {
    log();
    let mut registry = Registry::default();
    let libraries: Vec<PathBuf> = args.library.iter().map(|path| absolute(path)).collect();
    for file in &args.descriptions {
        for why in registry.add_file(file, &libraries)? {
            output::note(&format!("left out: {why}"));
        }
    }
    for (path, text) in args.shipped.files() {
        for why in registry.add_text(&path, text, &libraries)? {
            output::note(&format!("left out: {why}"));
        }
    }
    args.functions.apply(&mut registry)?;
    args.slot_limits.check(args.sandbox)?;
    if args.sandbox {
        registry.check_sandbox()?;
    }
    let count = registry.names().count();
    if count == 0 {
        let text = "no routine is described in what was given: there is nothing to serve";
        return Err(Error::Usage(text.to_owned()));
    }
    let mut config = config(args)?;
    config.check()?;
    let listener = listen(args)?;
    let address = listener.address().ok().flatten();
    config.jobs = Some(jobs(args, cluster)?);
    config.tls = args.guard.tls(cluster, address)?;
    config.sandbox = args.sandbox;
    config.share_memory = !args.no_shared_memory;
    let at = match address {
        Some(address) if config.tls.is_some() => format!("tls://{address}"),
        Some(address) => address.to_string(),
        None => args.listen.clone(),
    };
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ])
    .map_err(|source| Error::SetUp { what: "signals", source })?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _signal = signals.forever().next();
        drop(stop);
    });
    let (groups, notice) = args.slot_limits.groups()?;
    config.groups = groups;
    output::note(&format!("serves {count} routine{} at {at}", if count == 1 { "" } else { "s" }));
    notice.tell();
    tell_unloadable(registry.library_check(), config.clone());
    serve(config, registry, listener, async {
        // Nothing is ever sent: the receiver ends when the sender is dropped.
        let _gone = stopped.await;
    })?;
    Ok(())
}

/// Says which routines cannot be loaded, as soon as that is known. They are served all the same: what is missing may be
/// installed until somebody calls them.
fn tell_unloadable(check: LibraryCheck, config: Config) {
    std::thread::spawn(move || match check.run(&config) {
        Ok(missing) => {
            for Unloadable { why, routines } in missing {
                output::note(&format!("cannot run {}: {why}", routines.join(", ")));
            }
        }
        Err(error) => {
            output::note(&format!("the libraries of routines are not checked: {error}"));
        }
    });
}

/// Settings for starting jobs of parallel routines, as this program's user would start them.
fn jobs(args: &ServeArgs, cluster: &str) -> Result<Jobs, Error> {
    let kumi = std::env::current_exe()
        .map_err(|source| Error::SetUp { what: "the search for our other programs", source })?;
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let ranks = args.ranks.map_or_else(processors, u64::from);
    let folder = Context::new(cluster)?.dir().parent().map(Path::to_owned).unwrap_or_default();
    Ok(Jobs { kumi, cluster: cluster.to_owned(), folder, ranks })
}

fn config(args: &ServeArgs) -> Result<Config, Error> {
    let mut config = Config::new(cluster::beside("kumi-call-slot")?);
    (config.users, config.only_sent) = (args.guard.users()?, args.meta_only);
    if let Some(slots) = args.slots {
        config.slots = slots as usize;
    }
    config.waiting = args.waiting;
    config.objects = args.objects;
    config.threads = args.threads as usize;
    config.call_time = args.call_time;
    if let Some(mib) = args.call_memory {
        config.call_bytes = mib << 20;
        config.bytes = config.bytes.max(2 * config.call_bytes);
    }
    if let Some(scratch) = &args.scratch {
        // Absolute paths, so that libraries are found wherever their process runs.
        config.scratch = std::path::absolute(scratch).unwrap_or_else(|_| scratch.clone());
    }
    config.file_bytes = args.call_files << 20;
    config.scratch_bytes = args.all_files.unwrap_or(4 * args.call_files) << 20;
    if let Some(mib) = args.held_memory {
        config.held_bytes = mib << 20;
    }
    config.held_time = args.held_time;
    config.peers = match args.peer.as_slice() {
        [] => Peers::OfMetaserver,
        peers if peers.iter().any(|peer| peer == "any") => Peers::Any,
        peers => Peers::Listed(peers.to_vec()),
    };
    if let Some(file) = &args.peer_ca {
        // Checked now, so that errors show at the start.
        Authorities::load(Some(file))?;
    }
    config.peer_ca = args.peer_ca.clone().or_else(|| args.meta_ca.clone());
    config.logs = args.logs.limits()?;
    config.process_bytes = args.process_memory.map_or(0, |mib| mib << 20);
    if !args.meta.is_empty() {
        for address in &args.meta {
            check_address(address)?;
        }
        let unix = args.listen.starts_with("unix:").then(|| args.listen.clone());
        config.membership = Some(Membership {
            metaservers: args.meta.clone(),
            address: args.advertise.clone().or(unix).unwrap_or_default(),
            site: args.site.clone().unwrap_or_default(),
            token: token(args.meta_token_file.as_deref())?,
            ca: args.meta_ca.clone(),
            vouches: args.trust_meta,
            insecure: args.insecure,
        });
    }
    Ok(config)
}

/// Refuses what is no address of a metaserver, before anything else is said of it.
fn check_address(address: &str) -> Result<(), Error> {
    let bare = ["tls://", "kumi://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let parts = bare.unwrap_or(address).rsplit_once(':');
    let is_address = address.strip_prefix("unix:").is_some_and(|path| !path.is_empty())
        || parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match is_address {
        true => Ok(()),
        false => Err(CallError::Address(format!("--meta {address}")).into()),
    }
}

/// Reads a token from a file.
fn token(file: Option<&Path>) -> Result<String, Error> {
    let Some(path) = file else { return Ok(String::new()) };
    let text = std::fs::read_to_string(path);
    let failed = |source| Error::File { doing: "read", path: path.to_owned(), source };
    text.map(|text| text.trim().to_owned()).map_err(failed)
}

/// An absolute path for a library that is given as a file. The dynamic linker looks for a bare name.
fn absolute(path: &Path) -> PathBuf {
    if path.components().count() > 1 || path.exists() {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    }
    path.to_owned()
}

fn listen(args: &ServeArgs) -> Result<Listener, Error> {
    if let Some(path) = args.listen.strip_prefix("unix:") {
        return Ok(Listener::unix(Path::new(path))?);
    }
    let wrong = |why: String| Error::Usage(format!("--listen {}: {why}", args.listen));
    let found: Vec<SocketAddr> =
        args.listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    let address = found.first().ok_or_else(|| wrong("this host has no address".to_owned()))?;
    // Passes are only as safe as the connection on which their key goes to the metaserver; without --insecure that
    // connection was checked.
    if let Some(why) = args.guard.gap(args.meta_only)
        && !address.ip().is_loopback()
        && !(args.insecure_listen || args.insecure)
    {
        return Err(wrong(format!(
            "other machines reach this address, and {why}; give --tokens and --tls-cert and --tls-key (or \
             --tls-cluster), listen on 127.0.0.1 or unix:PATH, or give --insecure-listen as well"
        )));
    }
    Ok(Listener::tcp(*address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_metaservers_are_looked_at_first() {
        for good in ["h:1", "tls://h:7071", "unix:/run/meta", "[::1]:7071", "kumi://h:1"] {
            check_address(good).expect(good);
        }
        for wrong in ["foo", "", "h:", ":7071", "h:x", "h:70000", "unix:", "tls://h"] {
            let error = check_address(wrong).expect_err(wrong);
            assert_eq!(error.exit_code(), 64);
            assert!(error.to_string().starts_with(&format!("--meta {wrong} is not")), "{error}");
        }
    }
}
