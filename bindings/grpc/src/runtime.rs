//! State between `grpc_initialize` and `grpc_finalize`.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kumi_call_client::{CallError, HeldNames, Remote};
use kumi_rpc::HeldArrayName;

use crate::argument::text;
use crate::code::{Code, Failure, guard};
use crate::config::Config;
use crate::handle::{FUNCTIONS, Handle, Table};
use crate::held::GrpcHeldArray;
use crate::object::{OBJECTS, ObjectHandle};
use crate::output::GrpcOutput;
use crate::registry::Registry;
use crate::session::Sessions;
use crate::transaction::GrpcTransaction;

/// The state of the library.
pub struct Runtime {
    /// Settings of calls.
    pub config: Config,
    /// Function handles by number.
    pub handles: Mutex<Table<Handle>>,
    /// Objects by number.
    pub objects: Mutex<Table<ObjectHandle>>,
    /// Receivers of output.
    pub outputs: Registry<GrpcOutput>,
    /// Arrays at servers.
    pub held: Registry<GrpcHeldArray>,
    /// Names for such arrays. Made on first use.
    held_names: Mutex<Option<HeldNames>>,
    /// Transactions.
    pub transactions: Registry<GrpcTransaction>,
    /// Sessions by number.
    pub sessions: Sessions,
    /// One connection to each server, with a number that distinguishes it from earlier ones.
    clients: Mutex<(u64, HashMap<String, Connection>)>,
    /// The process that made it.
    process: u32,
}

/// A connection to a server or metaserver.
#[derive(Clone)]
pub struct Connection {
    /// The connection itself.
    pub client: Remote,
    /// Its number, which no other connection of this process has.
    pub number: u64,
}

static RUNTIME: RwLock<Option<Arc<Runtime>>> = RwLock::new(None);

/// Locks data that stays usable after a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state.
///
/// # Errors
/// [`Code::NotInitialized`].
pub fn current() -> Result<Arc<Runtime>, Failure> {
    let runtime = RUNTIME.read().unwrap_or_else(PoisonError::into_inner);
    let Some(runtime) = runtime.as_ref() else { return Err(Code::NotInitialized.into()) };
    if runtime.is_ours() {
        return Ok(Arc::clone(runtime));
    }
    let text = "this process was forked from the one that called grpc_initialize, whose handles and sessions stay that one's: \
                call grpc_initialize here as well";
    Err(Failure::new(Code::NotInitialized, text))
}

impl Runtime {
    /// Whether this process made it. After a fork, a child must not read from the parent's connections.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The connection to a server; connects if there is none.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn connection(&self, address: &str) -> Result<Connection, Failure> {
        let kept = lock(&self.clients).1.get(address).cloned();
        // A connection whose server ended between calls: nothing was sent over it.
        if let Some(connection) = kept.filter(|connection| !connection.client.is_lost()) {
            return Ok(connection);
        }
        // Connecting may take long, so others go on meanwhile. If two threads connect, the later connection is kept.
        let client =
            Remote::connect(address, &self.config.options).map_err(|error| match error {
                CallError::Lost(_) | CallError::TimedOut(_) => {
                    Failure::new(Code::ServerNotFound, format!("{address}: {error}"))
                }
                error => error.into(),
            })?;
        let mut clients = lock(&self.clients);
        clients.0 += 1;
        let connection = Connection { client, number: clients.0 };
        clients.1.insert(address.to_owned(), connection.clone());
        Ok(connection)
    }

    /// Drops a lost connection to a server: the next call makes another. One to a metaserver renews itself, and arrays that calls
    /// over it have left at servers stay its own.
    pub fn lost(&self, address: &str, connection: &Connection) {
        if matches!(connection.client, Remote::Grid(_)) {
            return;
        }
        let mut clients = lock(&self.clients);
        if clients.1.get(address).is_some_and(|kept| kept.number == connection.number) {
            clients.1.remove(address);
        }
    }

    /// Asks a server. If the connection was lost since its last use, it connects again.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn ask<T>(
        &self,
        address: &str,
        ask: impl Fn(&Remote) -> Result<T, CallError>,
    ) -> Result<(Connection, T), Failure> {
        let connection = self.connection(address)?;
        match ask(&connection.client) {
            Ok(said) => Ok((connection, said)),
            Err(CallError::Lost(_)) => {
                self.lost(address, &connection);
                let connection = self.connection(address)?;
                let said = ask(&connection.client)?;
                Ok((connection, said))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A new name for an array at a server.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn held_name(&self) -> Result<HeldArrayName, Failure> {
        let mut names = lock(&self.held_names);
        if names.is_none() {
            let made = HeldNames::new().map_err(|error| {
                Failure::new(Code::OtherErrorCode, format!("the array has no name: {error}"))
            })?;
            *names = Some(made);
        }
        names.as_mut().map(HeldNames::fresh).ok_or_else(|| Code::OtherErrorCode.into())
    }

    /// A routine's description at a server.
    ///
    /// # Errors
    /// The server cannot be reached or has no such routine.
    pub fn known(
        &self,
        address: &str,
        routine: &str,
    ) -> Result<(Connection, Arc<kumi_call_client::KnownRoutine>), Failure> {
        self.ask(address, |client| client.interface(routine))
    }
}

/// See `grpc.h`.
///
/// # Safety
/// `file` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_initialize(file: *const c_char) -> c_int {
    guard(|| {
        let mut runtime = RUNTIME.write().unwrap_or_else(PoisonError::into_inner);
        if runtime.as_ref().is_some_and(|runtime| runtime.is_ours()) {
            return Err(Code::AlreadyInitialized.into());
        }
        let config = if file.is_null() {
            Config::of_environment()?
        } else {
            // SAFETY: not null; the rest is promised by the caller.
            Config::read(Path::new(unsafe { text(file, "the file's name") }?))?
        };
        let new = Runtime {
            config,
            handles: Mutex::new(Table::new(FUNCTIONS)),
            objects: Mutex::new(Table::new(OBJECTS)),
            outputs: Registry::default(),
            held: Registry::default(),
            transactions: Registry::default(),
            held_names: Mutex::default(),
            sessions: Sessions::default(),
            clients: Mutex::default(),
            process: std::process::id(),
        };
        // After a fork, the inherited state belongs to the parent, which ends it.
        std::mem::forget(runtime.replace(Arc::new(new)));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_finalize() -> c_int {
    guard(|| {
        // The state of the parent process stays unchanged after a fork.
        current()?;
        let taken = RUNTIME.write().unwrap_or_else(PoisonError::into_inner).take();
        let runtime = taken.ok_or_else(|| Failure::from(Code::NotInitialized))?;
        // Also sessions for which other threads wait; these keep the rest alive until then.
        runtime.sessions.cancel_all(&runtime);
        runtime.transactions.all().iter().for_each(|transaction| transaction.stop());
        Ok(Code::NoError)
    })
}
