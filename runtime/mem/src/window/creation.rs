//! Creation of windows: all ranks together, in new memory or in the program's own.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock};

use kumi_net::Attachment;
use kumi_proto::frame::{NO_WINDOW, WindowKey};

use crate::collective;
use crate::context::Context;
use crate::error::Error;
use crate::window::Window;
use crate::window::mapped_piece::MappedPiece;
use crate::window::table::{Rights, WindowMemory, WindowRefusal, WindowTable};

impl Context {
    /// Makes a window with all rights. All ranks call this in the same order; sizes may differ.
    ///
    /// # Errors
    /// [`Error::WindowRefused`] at all ranks if one of them cannot make its part.
    pub fn window(&self, bytes: usize) -> Result<Window<'_>, Error> {
        self.window_with(bytes, Rights::ALL)
    }

    /// As [`Context::window`], with these rights for the others. (The owner's own `read`, `write`
    /// and [`Window::base`] are not restricted.)
    ///
    /// # Errors
    /// As [`Context::window`].
    pub fn window_with(&self, bytes: usize, rights: Rights) -> Result<Window<'_>, Error> {
        self.make_window(|windows, attachment| windows.create(attachment, bytes, rights))
    }

    /// As [`Context::window_with`], of memory that the program has (heap, stack, a mapped file) and that keeps
    /// its contents. Ranks that have none to lend call [`Context::window`] meanwhile, or this with an empty slice.
    ///
    /// The window is there while `body` runs, which gets it, and gone when this returns, also by a panic: the
    /// memory is then the caller's alone again. So all ranks synchronise at the end of `body`.
    ///
    /// Other ranks reach this memory, on the same node too, by frames which this rank's library applies, also
    /// while its program computes. The window can do all that others can. Memory that begins at no multiple of 8
    /// is refused unless `rights` is without atomic operations.
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// use kumi_mem::Rights;
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let mut table = vec![1, 2, 3, 4];
    /// let readers = Rights { read: true, write: true, atomic: false };
    /// context.with_window_on(&mut table, readers, |window| {
    ///     window.put((context.rank() + 1) % context.ranks(), 2, &[7, 8])?;
    ///     context.flush_all()?;
    ///     context.barrier()
    /// })??;
    /// assert_eq!(table, [1, 2, 7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Context::window`], and [`Error::Attach`] at a rank that can have no thread to serve the memory while its
    /// program computes; `body` has not run then.
    pub fn with_window_on<R>(
        &self,
        memory: &mut [u8],
        rights: Rights,
        body: impl FnOnce(&Window<'_>) -> R,
    ) -> Result<R, Error> {
        // SAFETY: the slice is borrowed until this function has ended and dropped the window, of which `body` gets
        // only a reference.
        let window = unsafe { self.window_on(memory.as_mut_ptr(), memory.len(), rights) }?;
        Ok(body(&window))
    }

    /// As [`Context::with_window_on`], for as long as the window lives.
    ///
    /// # Safety
    /// - The `bytes` bytes at `base` stay where they are until the window has been dropped, or, if it
    ///   is forgotten, until the context has ended.
    /// - Nothing takes them for unshared meanwhile. They change and are read at any time, as atomics
    ///   and raw pointers may.
    ///
    /// # Errors
    /// As [`Context::with_window_on`]; also if `base` is null and `bytes` is not 0.
    pub unsafe fn window_on(
        &self,
        base: *mut u8,
        bytes: usize,
        rights: Rights,
    ) -> Result<Window<'_>, Error> {
        self.make_window(|windows, attachment| {
            // SAFETY: the caller promises it until the window is dropped, which removes it.
            unsafe { windows.lend(attachment, base, bytes, rights) }
        })
    }

    /// Takes part in the creation of a window as a rank that cannot make it; the other ranks get
    /// [`Error::WindowRefused`]. For bindings of other languages that were given wrong arguments and
    /// would otherwise leave the other ranks waiting.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::Io`] if the others were not told.
    pub fn refuse_window(&self) -> Result<(), Error> {
        match self.make_window(|_, _| Err(WindowRefusal::Arguments)) {
            Ok(_) | Err(Error::WindowRefused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn make_window(
        &self,
        make: impl FnOnce(&mut WindowTable, &Attachment) -> Result<WindowMemory, WindowRefusal>,
    ) -> Result<Window<'_>, Error> {
        let made = make(&mut self.channel.lock()?.handler().windows, self.attachment());
        let mine = match &made {
            Ok(memory) => [memory.key, memory.length as u64],
            Err(reason) => [NO_WINDOW, *reason as u64],
        };
        let unshared = made.as_ref().map(|memory| UnsharedWindow(self, *memory));
        let (keys, sizes) = self.share_window(made.ok(), mine)?;
        let memory = made.map_err(|reason| reason.at(self.rank()))?;
        // From here on the window itself removes it.
        if let Ok(unshared) = unshared {
            std::mem::forget(unshared);
        }
        let mut mapped: Vec<OnceLock<MappedPiece>> = Vec::new();
        mapped.resize_with(self.attachment().local_count(), OnceLock::new);
        mapped[self.attachment().local()] = MappedPiece::own(self.attachment(), memory).into();
        let (idle_calls, ports) = (AtomicU32::new(0), Mutex::default());
        Ok(Window { context: self, keys, memory, sizes, mapped, idle_calls, ports })
    }

    /// Tells the others name and size of the own piece, and learns theirs; when this has succeeded, all ranks know all.
    fn share_window(
        &self,
        made: Option<WindowMemory>,
        mine: [u64; 2],
    ) -> Result<(Arc<[WindowKey]>, Vec<u64>), Error> {
        let words = collective::all_words(self, mine)?;
        agree(words.iter().map(|[key, reason]| if *key == NO_WINDOW { *reason } else { 0 }))?;
        let keys: Arc<[WindowKey]> = words.iter().map(|words| words[0]).collect();
        if let Some(memory) = made {
            let mut guard = self.channel.lock()?;
            guard.handler().windows.know(memory.key, Arc::clone(&keys));
        }
        let served = self.serve_same_node();
        // Nobody goes on before those who forward multicasts know the names, and all are served.
        let mine = if served.is_ok() { 0 } else { WindowRefusal::Thread as u64 };
        let told = collective::all_words(self, [mine])?;
        served?;
        agree(told.iter().map(|words| words[0]))?;
        Ok((keys, words.iter().map(|words| words[1]).collect()))
    }

    /// Serves frames of ranks of this node while the program computes, if one of them has windows that the others reach
    /// by frames. Owners of such windows get requests; the others forward multicasts and get the answers. A queue's
    /// descriptor that shows ends of requests needs it, too, and so do services.
    pub(crate) fn serve_same_node(&self) -> Result<(), Error> {
        self.channel.serve_rings(|engine| {
            engine.completion_queues.any_shown()
                || engine.windows.any_by_frames_on_node(self.attachment())
                || self.attachment().local_count() > 1 && engine.services.any()
        })
    }

    pub(crate) fn remove_window(&self, memory: &WindowMemory) -> Result<(), Error> {
        // Nothing is sent from it any more, whatever has gone wrong before.
        let start = memory.base.as_ptr().cast_const();
        self.channel.take_back(None, start..start.wrapping_add(memory.length));
        let key = memory.key;
        {
            let mut guard = self.channel.lock()?;
            guard.handler().fifos.remove_window(key);
            guard.handler().windows.remove(self.attachment(), key)?;
        }
        self.serve_same_node()
    }
}

/// Each rank's word is 0, or its reason to refuse.
fn agree(mut reasons: impl Iterator<Item = u64>) -> Result<(), Error> {
    let mut refused = (0..).zip(&mut reasons).filter(|(_, reason)| *reason != 0);
    match refused.next() {
        None => Ok(()),
        Some((rank, reason)) => {
            Err(Error::WindowRefused { rank, reason: WindowRefusal::text(reason) })
        }
    }
}

/// Takes a window back that not all ranks have come to know, also when the program's own code, which
/// waits call, panics: its memory may go then.
struct UnsharedWindow<'c>(&'c Context, WindowMemory);

impl Drop for UnsharedWindow<'_> {
    fn drop(&mut self) {
        // Without the lock the handler thread is dead and writes nowhere.
        let _ = self.0.remove_window(&self.1);
    }
}
