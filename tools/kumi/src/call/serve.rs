//! `kumi call serve`.

use super::access::{GuardArgs, log};
use super::python::PythonArgs;
use super::shipped::ShippedArgs;
use crate::context::Context;
use crate::error::Error;
use crate::{cluster, output, parse};
use clap::Args;
use kumi_call::Authorities;
use kumi_call::server::{Config, Jobs, Listener, Membership, Registry, serve};
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
    /// Interface descriptions, as text or in JSON
    #[arg(value_name = "FILE", required_unless_present_any = ["python", "shipped"])]
    pub descriptions: Vec<PathBuf>,
    #[command(flatten)]
    pub shipped: ShippedArgs,
    /// A shared library with the routines, beside those that descriptions name; may be given again
    #[arg(long, value_name = "FILE")]
    pub library: Vec<PathBuf>,
    #[command(flatten)]
    pub functions: PythonArgs,
    /// Where to listen: HOST:PORT (port 0: any that is free) or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Listen on an address that other machines reach, though the server does not know who calls or does not encrypt
    #[arg(long)]
    pub insecure_listen: bool,
    #[command(flatten)]
    pub guard: GuardArgs,
    /// Run routines without network, with files read-only but for empty folders of their own at /tmp, /var/tmp and
    /// /dev/shm, and without capabilities
    #[arg(long)]
    pub sandbox: bool,
    /// Give clients on this machine no memory of their calls: all arrays go through sockets
    #[arg(long)]
    pub no_shared_memory: bool,
    /// Calls that run at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Calls that may wait for a slot
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub waiting: usize,
    /// Objects of classes at the same time, each of which is a process
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub objects: usize,
    /// Threads that the libraries of a routine may use
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: u32,
    /// Longest time of a call, waiting included [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub call_time: Option<Duration>,
    /// Most MiB of one call's arguments [default: a quarter of the memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub call_memory: Option<u64>,
    /// Most MiB of address space of a routine's process, its arguments included [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub process_memory: Option<u64>,
    /// A folder for the files of calls, which are there while a call runs [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Most MiB of one call's files, in either direction
    #[arg(long, value_name = "MIB", default_value_t = 16 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub call_files: u64,
    /// Most MiB of the files that all calls together have sent [default: four times those of one]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub all_files: Option<u64>,
    /// Register at this metaserver, or at the first of several that answers; clients that ask it are sent here
    #[arg(long, value_name = "ADDR[,ADDR…]", value_delimiter = ',')]
    pub meta: Vec<String>,
    /// A file with the token that the metaserver has for this server (`kumi call token add NAME --server` there)
    #[arg(long, value_name = "FILE", requires = "meta")]
    pub meta_token_file: Option<PathBuf>,
    /// Of a metaserver at tls://HOST:PORT: the certificates (PEM) of the authorities to trust, instead of those that the
    /// system trusts
    #[arg(long, value_name = "FILE", env = "KUMI_CALL_CA")]
    pub meta_ca: Option<PathBuf>,
    /// Only calls that the metaserver has sent
    #[arg(long, requires = "meta")]
    pub meta_only: bool,
    /// The address that clients are sent to [default: that of --listen, as the metaserver sees this machine]
    #[arg(long, value_name = "ADDR", requires = "meta")]
    pub advertise: Option<String>,
    /// The site: clients and servers of one site share its path to the others [default: the network of the address]
    #[arg(long, value_name = "NAME", env = "KUMI_CALL_SITE")]
    pub site: Option<String>,
    /// Most MiB of results that stay here between calls [default: a quarter of the memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub held_memory: Option<u64>,
    /// Longest time that a result stays here
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse::estimate)]
    pub held_time: Duration,
    /// Most ranks of the job of a parallel routine, and those of a job that leaves it to the server [default: one for each
    /// processor of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// A server from which results are fetched for calls, as HOST:PORT or tls://HOST:PORT; may be given again [default: any]
    #[arg(long, value_name = "ADDR")]
    pub peer: Vec<String>,
    /// Of servers at tls://HOST:PORT from which results are fetched: the certificates (PEM) of the authorities to trust
    /// [default: those of --meta-ca, or else those that the system trusts]
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
    if args.sandbox {
        registry.check_sandbox()?;
    }
    let count = registry.names().count();
    let listener = listen(args)?;
    let address = listener.address().ok().flatten();
    let mut config = config(args)?;
    config.jobs = Some(jobs(args, cluster)?);
    config.users = args.guard.users()?;
    config.tls = args.guard.tls(cluster, address)?;
    (config.sandbox, config.only_sent) = (args.sandbox, args.meta_only);
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
    output::note(&format!("serves {count} routine{} at {at}", if count == 1 { "" } else { "s" }));
    serve(config, registry, listener, async {
        // Nothing is ever sent: it ends when the sender goes.
        let _gone = stopped.await;
    })?;
    Ok(())
}

/// How jobs of parallel routines are started: as this program's user would.
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
        // Routines get names that hold wherever their process runs.
        config.scratch = std::path::absolute(scratch).unwrap_or_else(|_| scratch.clone());
    }
    config.file_bytes = args.call_files << 20;
    config.scratch_bytes = args.all_files.unwrap_or(4 * args.call_files) << 20;
    if let Some(mib) = args.held_memory {
        config.held_bytes = mib << 20;
    }
    config.held_time = args.held_time;
    config.peers = (!args.peer.is_empty()).then(|| args.peer.clone());
    if let Some(file) = &args.peer_ca {
        // What is wrong with it is said now, not when it is needed.
        Authorities::load(Some(file))?;
    }
    config.peer_ca = args.peer_ca.clone().or_else(|| args.meta_ca.clone());
    config.process_bytes = args.process_memory.map_or(0, |mib| mib << 20);
    if !args.meta.is_empty() {
        let unix = args.listen.starts_with("unix:").then(|| args.listen.clone());
        config.membership = Some(Membership {
            metaservers: args.meta.clone(),
            address: args.advertise.clone().or(unix).unwrap_or_default(),
            site: args.site.clone().unwrap_or_default(),
            token: token(args.meta_token_file.as_deref())?,
            ca: args.meta_ca.clone(),
        });
    }
    Ok(config)
}

/// The token of a file.
fn token(file: Option<&Path>) -> Result<String, Error> {
    let Some(path) = file else { return Ok(String::new()) };
    let text = std::fs::read_to_string(path);
    let failed = |source| Error::File { doing: "read", path: path.to_owned(), source };
    text.map(|text| text.trim().to_owned()).map_err(failed)
}

/// A library that is named as a file is found wherever slots run; a bare name is looked for by the system's linker.
fn absolute(path: &Path) -> PathBuf {
    if path.components().count() > 1 || path.exists() {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    }
    path.to_owned()
}

/// Whether no other machine is at this address.
fn is_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn listen(args: &ServeArgs) -> Result<Listener, Error> {
    if let Some(path) = args.listen.strip_prefix("unix:") {
        return Ok(Listener::unix(Path::new(path))?);
    }
    let wrong = |why: String| Error::Usage(format!("--listen {}: {why}", args.listen));
    let found: Vec<SocketAddr> =
        args.listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    let address = found.first().ok_or_else(|| wrong("this host has no address".to_owned()))?;
    // Passes are as good as the way on which their key goes to the metaserver.
    let is_safe =
        |meta: &String| meta.starts_with("tls://") || meta.starts_with("unix:") || is_here(meta);
    if let Some(why) = args.guard.gap(args.meta_only && args.meta.iter().all(is_safe))
        && !address.ip().is_loopback()
        && !args.insecure_listen
    {
        return Err(wrong(format!(
            "other machines reach this address, and {why}; give --tokens and --tls-cert and --tls-key (or \
             --tls-cluster), listen on 127.0.0.1 or unix:PATH, or give --insecure-listen as well"
        )));
    }
    Ok(Listener::tcp(*address)?)
}
