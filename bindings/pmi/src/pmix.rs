//! The PMIx server of a node: the library with this job registered, and what the library asks for.
//!
//! The library calls back from threads of its own. Each callback copies what it got, puts it into a queue and wakes the one
//! thread that decides. That thread answers through the functions that came with the question.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use kumi_pmi::message::{ServedJob, ServedNode};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::ffi::{self, Module, Proc, Status};
use crate::info::{InfoList, copied, process, published, text_in, texts};
use crate::library::Pmix;

/// A question whose answer is a status.
#[derive(Debug)]
pub struct OpReply(Option<ffi::OpCallback>, *mut c_void);
/// A question whose answer is data.
#[derive(Debug)]
pub struct ModexReply(Option<ffi::ModexCallback>, *mut c_void);

// SAFETY: the pointer belongs to the library, whose functions may be called from any thread; here it is only passed back.
unsafe impl Send for OpReply {}
// SAFETY: as above.
unsafe impl Send for ModexReply {}

/// A question for the value of a name.
#[derive(Debug)]
pub struct LookupReply(Option<ffi::LookupCallback>, *mut c_void);

// SAFETY: as above.
unsafe impl Send for LookupReply {}

impl LookupReply {
    /// The name has this value.
    pub fn answer(self, name: &str, value: &str) {
        let Some(call) = self.0 else { return };
        // The library may read it later and does not say when it has: names are few, and this process ends with its job.
        let found = Box::leak(Box::new(published(name, value)));
        // SAFETY: the function and its argument came together, and are used once. What it reads lives as long as the process.
        unsafe { call(ffi::SUCCESS, found, 1, self.1) };
    }

    /// There is none.
    pub fn refuse(self, status: Status) {
        if let Some(call) = self.0 {
            // SAFETY: as above, without a value.
            unsafe { call(status, std::ptr::null_mut(), 0, self.1) };
        }
    }
}

impl OpReply {
    pub fn answer(self, status: Status) {
        if let Some(call) = self.0 {
            // SAFETY: the function and its argument came together, and are used once.
            unsafe { call(status, self.1) };
        }
    }
}

impl ModexReply {
    pub fn answer(self, result: Result<Vec<u8>, Status>) {
        let Some(call) = self.0 else { return };
        match result {
            Ok(data) => {
                let held = Box::new(data);
                let (at, length) = (held.as_ptr().cast::<c_char>(), held.len());
                let held = Box::into_raw(held).cast::<c_void>();
                // SAFETY: the function and its argument came together, and are used once. The data lives until the library
                // releases it.
                unsafe { call(ffi::SUCCESS, at, length, self.1, Some(release), held) };
            }
            // SAFETY: as above, without data.
            Err(status) => unsafe {
                call(status, std::ptr::null(), 0, self.1, None, std::ptr::null_mut());
            },
        }
    }
}

unsafe extern "C" fn release(held: *mut c_void) {
    // SAFETY: `answer` made it of such a box and gave it away, and the library releases it once.
    drop(unsafe { Box::from_raw(held.cast::<Vec<u8>>()) });
}

/// What the library or a rank wants.
#[derive(Debug)]
pub enum Event {
    Connected(u32, OpReply),
    Finalized(u32, OpReply),
    Aborted {
        rank: u32,
        code: i32,
        message: String,
        reply: OpReply,
    },
    /// Ranks of this node have all come to a fence of these ranks; none means all of the job.
    Fence {
        ranks: Vec<u32>,
        data: Vec<u8>,
        reply: ModexReply,
    },
    Modex {
        rank: u32,
        reply: ModexReply,
    },
    /// The answer of [`Server::ask_data`].
    Data {
        request: u64,
        data: Option<Vec<u8>>,
    },
    SpawnRefused(u32),
    Publish {
        rank: u32,
        name: String,
        value: String,
        reply: OpReply,
    },
    Lookup {
        name: String,
        reply: LookupReply,
    },
    Unpublish {
        rank: u32,
        name: String,
        reply: OpReply,
    },
}

/// Questions of the library's threads.
struct Queue {
    events: Mutex<VecDeque<Event>>,
    wake: EventFd,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

fn push(event: Event) {
    if let Some(queue) = QUEUE.get() {
        queue.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
        // Fails only if very many wake-ups wait already.
        let _ = queue.wake.write(1);
    }
}

/// The server of this process.
pub struct Server {
    library: Pmix,
    nspace: String,
}

/// A process may have one server.
impl Server {
    /// Starts it and registers the job. Returns it and the variables of each local rank.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(library: Pmix, job: &ServedJob) -> Result<(Self, Vec<Env>), String> {
        let own = job.own().ok_or("the job has no rank on this node")?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| format!("no eventfd can be made: {error}"))?;
        let queue = Queue { events: Mutex::default(), wake };
        if QUEUE.set(queue).is_err() {
            return Err("this process has a PMIx server already".to_owned());
        }
        let server = Self { library, nspace: format!("kumi-{}", job.job) };
        server.init(job, own)?;
        server.register(job, own)?;
        let env = (own.first..).take(count(own)).map(|rank| server.env(job, rank));
        let env = env.collect::<Result<_, _>>()?;
        Ok((server, env))
    }

    fn check(&self, what: &str, status: Status) -> Result<(), String> {
        if status == ffi::SUCCESS || status == ffi::OPERATION_SUCCEEDED {
            return Ok(());
        }
        Err(format!("{what}: {}", self.library.error(status)))
    }

    fn init(&self, job: &ServedJob, own: &ServedNode) -> Result<(), String> {
        let mut list = InfoList::default();
        list.text("pmix.srvr.tmpdir", &job.folder);
        list.text("pmix.sys.tmpdir", &job.folder);
        list.text("pmix.hname", &own.name);
        list.text("pmix.srv.nspace", &format!("{}-server", self.nspace));
        list.rank("pmix.srv.rank", job.place);
        let (infos, length) = list.parts();
        let module = Box::leak(Box::new(module()));
        // SAFETY: the module lives as long as the process, the list as long as the call.
        let status = unsafe { (self.library.init)(module, infos, length) };
        self.check("the PMIx server does not start", status)
    }

    fn register(&self, job: &ServedJob, own: &ServedNode) -> Result<(), String> {
        let mut list = self.attributes(job, own)?;
        let nspace = CString::new(self.nspace.as_str()).unwrap_or_default();
        let (infos, length) = list.parts();
        let local = c_int::try_from(own.count).unwrap_or(c_int::MAX);
        self.wait("the job is not registered", |call, data| {
            // SAFETY: name and list live until the callback has come.
            unsafe {
                (self.library.register_nspace)(nspace.as_ptr(), local, infos, length, call, data)
            }
        })?;
        for rank in (own.first..).take(count(own)) {
            let client = process(&self.nspace, rank);
            let object = std::ptr::null_mut();
            self.wait("a rank is not registered", |call, data| {
                // SAFETY: the process lives until the callback has come.
                unsafe {
                    (self.library.register_client)(
                        &raw const client,
                        job.uid,
                        job.gid,
                        object,
                        call,
                        data,
                    )
                }
            })?;
        }
        Ok(())
    }

    /// Calls a function that calls back, and waits for that.
    fn wait(
        &self,
        what: &str,
        call: impl FnOnce(Option<ffi::OpCallback>, *mut c_void) -> Status,
    ) -> Result<(), String> {
        let (sender, receiver) = sync_channel::<Status>(1);
        let held = Box::into_raw(Box::new(sender));
        let status = call(Some(done), held.cast());
        if status != ffi::SUCCESS {
            // SAFETY: the function has not taken it, so nobody else has it.
            drop(unsafe { Box::from_raw(held) });
            return self.check(what, status);
        }
        let status = receiver.recv().map_err(|_| format!("{what}: no answer"))?;
        self.check(what, status)
    }

    /// What ranks can ask about their job.
    fn attributes(&self, job: &ServedJob, own: &ServedNode) -> Result<InfoList, String> {
        let mut list = InfoList::default();
        let nodes = u32::try_from(job.nodes.len()).unwrap_or(u32::MAX);
        for key in ["pmix.univ.size", "pmix.job.size", "pmix.max.size", "pmix.app.size"] {
            list.number(key, job.ranks);
        }
        for key in ["pmix.local.size", "pmix.node.size"] {
            list.number(key, own.count);
        }
        list.number("pmix.num.nodes", nodes);
        list.number("pmix.appnum", 0);
        list.number("pmix.job.napps", 1);
        list.text("pmix.jobid", &job.job.to_string());
        list.text("pmix.lpeers", &ranks_of(own));
        list.rank("pmix.lldr", own.first);
        for key in ["pmix.tmpdir", "pmix.nsdir"] {
            list.text(key, &job.folder);
        }
        let names: Vec<&str> = job.nodes.iter().map(|node| node.name.as_str()).collect();
        let ranks: Vec<String> = job.nodes.iter().map(ranks_of).collect();
        list.c_text("pmix.nmap", self.regex(&self.library.generate_regex, &names.join(","))?);
        list.c_text("pmix.pmap", self.regex(&self.library.generate_ppn, &ranks.join(";"))?);
        for (place, node) in (0..).zip(&job.nodes) {
            for (local, rank) in (0..).zip((node.first..).take(count(node))) {
                list.array("pmix.pdata", rank_attributes(node, (place, local), rank));
            }
        }
        Ok(list)
    }

    /// A list as the library writes it for its clients, unless that is compressed, which is no text.
    fn regex(&self, generate: &ffi::GenerateFn, list: &str) -> Result<CString, String> {
        let input = CString::new(list).map_err(|_| "a node's name has a zero byte")?;
        let mut made = std::ptr::null_mut();
        // SAFETY: the input lives as long as the call, and the result is written to a variable of that type.
        let status = unsafe { generate(input.as_ptr(), &raw mut made) };
        self.check("the job's nodes cannot be described", status)?;
        // SAFETY: the library made it, with a zero at its end.
        let text = unsafe { copied(made) };
        let plain = text.as_bytes().starts_with(b"pmix[") || text.as_bytes().starts_with(b"raw:");
        if plain {
            return Ok(text);
        }
        Ok(CString::new(format!("raw:{list}")).unwrap_or_default())
    }

    /// The variables by which a rank finds the server.
    fn env(&self, job: &ServedJob, rank: u32) -> Result<Env, String> {
        let client = process(&self.nspace, rank);
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: the library allocates the list, which ends with a null pointer. It is never freed: this happens once.
        let status = unsafe { (self.library.setup_fork)(&raw const client, &raw mut list) };
        self.check("a rank's environment cannot be made", status)?;
        let mut all = Vec::new();
        // SAFETY: as above; each entry is a text.
        while !list.is_null() && unsafe { !(*list).is_null() } {
            // SAFETY: as above.
            let text = unsafe { copied(*list) };
            // SAFETY: the entry was not the last.
            list = unsafe { list.add(1) };
            if let Some((name, value)) = text.to_string_lossy().split_once('=') {
                all.push((name.to_owned(), value.to_owned()));
            }
        }
        all.push(("PMIX_SERVER_TMPDIR".to_owned(), job.folder.clone()));
        Ok(all)
    }

    /// Asks for what a rank of this node has told; [`Event::Data`] has it.
    pub fn ask_data(&self, rank: u32, request: u64) {
        let wanted = process(&self.nspace, rank);
        let held = Box::into_raw(Box::new(request));
        // SAFETY: the process is copied by the call, and the callback takes the number back.
        let status =
            unsafe { (self.library.dmodex_request)(&raw const wanted, Some(told), held.cast()) };
        if status != ffi::SUCCESS {
            // SAFETY: the function has not taken it.
            drop(unsafe { Box::from_raw(held) });
            push(Event::Data { request, data: None });
        }
    }
}

/// What the library has asked since.
pub fn events() -> Vec<Event> {
    let Some(queue) = QUEUE.get() else { return Vec::new() };
    // Nothing to read if there was no question.
    let _ = queue.wake.read();
    queue.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
}

/// What becomes readable when there are questions.
pub fn wake() -> Option<BorrowedFd<'static>> {
    QUEUE.get().map(|queue| queue.wake.as_fd())
}

/// Variables of a rank.
pub type Env = Vec<(String, String)>;

fn count(node: &ServedNode) -> usize {
    usize::try_from(node.count).unwrap_or(usize::MAX)
}

/// The numbers of a node's ranks, with commas.
fn ranks_of(node: &ServedNode) -> String {
    let ranks = (node.first..).take(count(node)).map(|rank| rank.to_string());
    ranks.collect::<Vec<_>>().join(",")
}

fn rank_attributes(node: &ServedNode, (place, local): (u32, u32), rank: u32) -> InfoList {
    let mut list = InfoList::default();
    let local = u16::try_from(local).unwrap_or(u16::MAX);
    for key in ["pmix.rank", "pmix.grank", "pmix.apprank"] {
        list.rank(key, rank);
    }
    list.small("pmix.lrank", local);
    list.small("pmix.nrank", local);
    list.number("pmix.nodeid", place);
    list.number("pmix.appnum", 0);
    list.text("pmix.hname", &node.name);
    list
}

/// The functions that the library calls.
fn module() -> Module {
    Module {
        client_connected: Some(client_connected),
        client_finalized: Some(client_finalized),
        abort: Some(aborted),
        fence: Some(fence),
        direct_modex: Some(direct_modex),
        publish: Some(publish),
        lookup: Some(lookup),
        unpublish: Some(unpublish),
        spawn: Some(spawn),
        others: [None; 64],
    }
}

/// Runs a callback. A panic must not unwind into the library; its question is refused then.
fn guarded(body: impl FnOnce()) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => ffi::SUCCESS,
        Err(_) => ffi::ERR_OUT_OF_RESOURCE,
    }
}

/// The rank of a process that the library names.
///
/// # Safety
/// It is null or points to one.
unsafe fn rank_of(client: *const Proc) -> u32 {
    // SAFETY: as the caller says.
    unsafe { client.as_ref() }.map_or(u32::MAX, |client| client.rank)
}

/// A copy of `length` bytes.
///
/// # Safety
/// There are so many, or the pointer is null.
unsafe fn bytes_at(at: *const c_char, length: usize) -> Vec<u8> {
    if at.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: as the caller says; nobody changes them during the call.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), length) }.to_vec()
}

unsafe extern "C" fn client_connected(
    client: *const Proc,
    _object: *mut c_void,
    call: Option<ffi::OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes a process.
    guarded(|| push(Event::Connected(unsafe { rank_of(client) }, OpReply(call, data))))
}

unsafe extern "C" fn client_finalized(
    client: *const Proc,
    _object: *mut c_void,
    call: Option<ffi::OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes a process.
    guarded(|| push(Event::Finalized(unsafe { rank_of(client) }, OpReply(call, data))))
}

unsafe extern "C" fn aborted(
    client: *const Proc,
    _object: *mut c_void,
    code: c_int,
    message: *const c_char,
    _others: *mut Proc,
    _count: usize,
    call: Option<ffi::OpCallback>,
    data: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the library passes a process, and a text or null.
        let (rank, message) = unsafe { (rank_of(client), copied(message)) };
        let message = message.to_string_lossy().into_owned();
        push(Event::Aborted { rank, code, message, reply: OpReply(call, data) });
    })
}

unsafe extern "C" fn fence(
    members: *const Proc,
    members_count: usize,
    _infos: *const ffi::Info,
    _infos_count: usize,
    data: *mut c_char,
    length: usize,
    call: Option<ffi::ModexCallback>,
    reply: *mut c_void,
) -> Status {
    guarded(|| {
        let ranks = match members.is_null() {
            true => Vec::new(),
            // SAFETY: the library passes so many processes.
            false => unsafe { std::slice::from_raw_parts(members, members_count) }
                .iter()
                .map(|member| member.rank)
                .collect(),
        };
        let all = ranks.contains(&ffi::RANK_WILDCARD);
        let ranks = if all { Vec::new() } else { ranks };
        // SAFETY: the library passes so many bytes.
        let data = unsafe { bytes_at(data, length) };
        push(Event::Fence { ranks, data, reply: ModexReply(call, reply) });
    })
}

unsafe extern "C" fn direct_modex(
    wanted: *const Proc,
    _infos: *const ffi::Info,
    _count: usize,
    call: Option<ffi::ModexCallback>,
    data: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: the library passes a process.
        let rank = unsafe { rank_of(wanted) };
        push(Event::Modex { rank, reply: ModexReply(call, data) });
    })
}

/// Names go one by one, with texts as values: MPI publishes nothing else.
unsafe extern "C" fn publish(
    client: *const Proc,
    infos: *const ffi::Info,
    count: usize,
    call: Option<ffi::OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes so many attributes, which nobody changes during the call.
    let pairs = unsafe { texts(infos, count) };
    let [(name, value)] = &pairs[..] else { return ffi::ERR_NOT_SUPPORTED };
    guarded(|| {
        let (name, value) = (name.clone(), value.clone());
        // SAFETY: the library passes a process.
        let rank = unsafe { rank_of(client) };
        push(Event::Publish { rank, name, value, reply: OpReply(call, data) });
    })
}

/// The only text of a list.
///
/// # Safety
/// It is null or a list of texts that ends with null.
unsafe fn only(list: *mut *mut c_char) -> Option<String> {
    if list.is_null() {
        return None;
    }
    // SAFETY: as the caller says: the first is a text or null, and then the second, too.
    unsafe {
        if (*list).is_null() || !(*list.add(1)).is_null() { None } else { Some(text_in(*list)) }
    }
}

unsafe extern "C" fn lookup(
    _client: *const Proc,
    keys: *mut *mut c_char,
    _infos: *const ffi::Info,
    _count: usize,
    call: Option<ffi::LookupCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes such a list.
    let Some(name) = (unsafe { only(keys) }) else { return ffi::ERR_NOT_SUPPORTED };
    guarded(|| push(Event::Lookup { name, reply: LookupReply(call, data) }))
}

unsafe extern "C" fn unpublish(
    client: *const Proc,
    keys: *mut *mut c_char,
    _infos: *const ffi::Info,
    _count: usize,
    call: Option<ffi::OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library passes such a list.
    let Some(name) = (unsafe { only(keys) }) else { return ffi::ERR_NOT_SUPPORTED };
    guarded(|| {
        // SAFETY: the library passes a process.
        let rank = unsafe { rank_of(client) };
        push(Event::Unpublish { rank, name, reply: OpReply(call, data) });
    })
}

unsafe extern "C" fn spawn(
    client: *const Proc,
    _infos: *const ffi::Info,
    _count: usize,
    _apps: *const c_void,
    _apps_count: usize,
    _call: *const c_void,
    _data: *mut c_void,
) -> Status {
    // SAFETY: the library passes a process.
    guarded(|| push(Event::SpawnRefused(unsafe { rank_of(client) })));
    ffi::ERR_NOT_SUPPORTED
}

unsafe extern "C" fn done(status: Status, held: *mut c_void) {
    // SAFETY: `wait` made it of such a box, and the library calls back once.
    let sender = unsafe { Box::from_raw(held.cast::<SyncSender<Status>>()) };
    // The other end waits.
    let _ = sender.send(status);
}

unsafe extern "C" fn told(status: Status, data: *mut c_char, length: usize, held: *mut c_void) {
    // SAFETY: `ask_data` made it of such a box, and the library calls back once.
    let request = *unsafe { Box::from_raw(held.cast::<u64>()) };
    // SAFETY: the library passes so many bytes.
    let data = (status == ffi::SUCCESS).then(|| unsafe { bytes_at(data, length) });
    guarded(|| push(Event::Data { request, data }));
}
